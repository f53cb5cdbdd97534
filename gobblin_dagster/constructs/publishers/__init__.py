"""Publishers: what becomes of a branch's files once its rows are staged. The protocol is `DataPublisher` of `core.constructs`."""
