// Package functions tests the functions that a master runs itself: runners, wheel functions
// and reactions, in Go and in Salt's Python.
package functions
