// In place of GKlib's file of this name, which is glibc's quicksort under the LGPL: METIS for wheels is built with this
// heapsort. GKlib's sort.c and METIS's gklib.c use it once for each type of element.
#ifndef _GK_MKSORT_H_
#define _GK_MKSORT_H_

// Sorts COUNT elements at BASE in place, in ascending order by LESS(pointer, pointer); equal ones in any order.
#define GK_MKQSORT(TYPE, BASE, COUNT, LESS)                                              \
  {                                                                                      \
    TYPE* const _base = (BASE);                                                          \
    TYPE _held;                                                                          \
    size_t _end = (COUNT), _root = _end / 2, _at, _child;                                \
    while (_end > 1) {                                                                   \
      if (_root > 0) { /* until all parents are in order: the next parent */             \
        _held = _base[--_root];                                                          \
      } else { /* the largest element goes to the end, for the last one */               \
        _held = _base[--_end];                                                           \
        _base[_end] = _base[0];                                                          \
      }                                                                                  \
      for (_at = _root; (_child = 2 * _at + 1) < _end; _at = _child) {                   \
        if (_child + 1 < _end && LESS((_base + _child), (_base + _child + 1))) ++_child; \
        if (!(LESS((&_held), (_base + _child)))) break;                                  \
        _base[_at] = _base[_child];                                                      \
      }                                                                                  \
      _base[_at] = _held;                                                                \
    }                                                                                    \
  }

#endif
