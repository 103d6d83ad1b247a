"""Stars and what runs in them: state, graph, agents, registry, conversation, governance."""
