// Package packaging holds the systemd units and accounts that a host needs besides the programs.
// `make install` installs them; the packages are built with it. The image contains those of them
// that need no change there.
package packaging

import "embed"

// Virtual is the unit saltern-vip.service: keepalived for the virtual address, with rights that
// applianced does not have.
//
//go:embed saltern-vip.service
var Virtual []byte

// PAM are the units of the helper that checks the passwords of local accounts, for a host.
//
//go:embed saltern-pam.socket saltern-pam@.service
var PAM embed.FS

// Accounts are the accounts of a node, for systemd-sysusers.
//
//go:embed saltern.sysusers
var Accounts []byte
