"""The admission webhook: pods that ask for slices are made right, or refused with what would do."""
