"""Rows that are spread over the processes of torch.distributed."""
