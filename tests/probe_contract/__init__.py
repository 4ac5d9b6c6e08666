"""The probe apps answer as their contract says, with and without the product in front."""
