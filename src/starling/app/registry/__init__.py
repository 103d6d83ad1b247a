"""The registry as admins and tenants change it, and how processes follow it."""
