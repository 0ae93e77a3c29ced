"""What is known of Prolific: its API, the accounts' tokens for it, its webhooks and signed
links, and what a payment may cost.
"""
