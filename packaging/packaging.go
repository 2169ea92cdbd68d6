// Package packaging holds what a host needs beside the programs: units of
// systemd and accounts. `make install` puts them in place, for packages too; the
// image has those that are the same there.
package packaging

import "embed"

// Virtual is the unit saltern-vip.service: keepalived for the virtual address,
// with rights that applianced does without.
//
//go:embed saltern-vip.service
var Virtual []byte

// PAM are the units of the helper that checks passwords of local accounts, for a host.
//
//go:embed saltern-pam.socket saltern-pam@.service
var PAM embed.FS

// Accounts are those of a node, for systemd-sysusers.
//
//go:embed saltern.sysusers
var Accounts []byte
