"""Services that check, import, activate and archive teams."""
