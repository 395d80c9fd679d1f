"""When an idle notebook gives its slice back: the policy, and what carries it out."""
