"""What the graph behind a policy's loss says: its weights, its entropy, its ratio to the policy that acted."""
