"""Orchestrators: each runs one build where it belongs, behind the `AssetOrchestrator` seam."""
