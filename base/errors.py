"""The error every part of Cohort raises for bad input: place, expected, found, cure."""


class CohortError(RuntimeError):
    """What a user can repair. Its text has one shape everywhere: place, expected, found, hint.

    Args:
        place: file, argument or process concerned.
        expected: what should have been there.
        found: what was there.
        hint: what to do about it; left out of the text when empty.
    """

    def __init__(self, place: str, expected: str, found: str, hint: str = ""):
        text = f"{place}: expected {expected}, found {found}"
        super().__init__(f"{text}\n  hint: {hint}" if hint else text)
        self.place, self.expected, self.found, self.hint = place, expected, found, hint

    @classmethod
    def from_text(cls, text: str) -> "CohortError":
        """The error with this text, as the native libraries phrase it."""
        error = cls.__new__(cls)
        RuntimeError.__init__(error, text)
        error.place, error.expected, error.found, error.hint = text, "", "", ""
        return error
