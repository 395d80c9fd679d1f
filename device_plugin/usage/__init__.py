"""Measuring what slices really use: sampling the cards, keeping the books, telling others."""
