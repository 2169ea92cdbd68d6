package main

import "saltern/internal/release"

func version() string { return release.Salt + " (Saltern " + release.Version() + ")" }
