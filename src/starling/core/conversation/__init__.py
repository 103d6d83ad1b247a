"""Conversations: the kinds of states, their envelope and transitions, how runs make them and how models see them."""
