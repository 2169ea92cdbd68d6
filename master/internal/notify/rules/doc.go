// Package rules reads the option saltern_notify: which messages go where. It does no input or
// output, except that [Secret.Read] reads the file of a secret.
package rules
