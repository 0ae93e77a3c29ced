"""Write exports and bundles, and import what such files hold.

Both run in subprocesses of the web process (`python -m frontend.transfer`), so that a file of a million rows costs the
participants' requests neither memory nor time.
"""
