"""`%%inductoscope`: records or examines a cell of a notebook, and shows what was found below it.

IPython is imported only inside functions, since it is always loaded when they are called.
"""
