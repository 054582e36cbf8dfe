"""Time to accuracy, measured: small networks trained in many ways until they reach a test accuracy."""
