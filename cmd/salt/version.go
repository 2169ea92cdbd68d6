package main

import "saltern/release"

func version() string { return release.Salt + " (Saltern " + release.Version() + ")" }
