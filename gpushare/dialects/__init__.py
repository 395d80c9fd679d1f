"""Other systems' ways of asking for a slice, so that manifests and tools made for them go on working.

Each dialect is one small file; ``table`` lists them all. A dialect says which resources it has, how
they are read, and what is written on pods and into containers besides what we write ourselves.
Everything else treats dialects alike: nowhere is it asked which one it is.
"""
