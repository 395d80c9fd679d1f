"""The dashboard: a service of the Hub that shows people their slices, and admins all cards.

``readings`` reads what others say, ``view`` makes screens of it (pure), ``pages`` writes them as HTML,
``feed`` keeps them fresh for everybody at once, ``web`` serves them.
"""
