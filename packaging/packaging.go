// Package packaging holds the systemd units and accounts that a host needs besides the programs.
// `make install` installs them; the packages are built with it. The image contains those units and
// accounts that need no change there.
package packaging

import "embed"

// Virtual is the unit saltern-vip.service: keepalived for the virtual address, with rights that
// applianced does not have.
//
//go:embed saltern-vip.service
var Virtual []byte

// PAM holds the units of the helper that checks the passwords of local accounts on a host.
//
//go:embed saltern-pam.socket saltern-pam@.service
var PAM embed.FS

// Accounts is the list of a node's accounts in the format of systemd-sysusers.
//
//go:embed saltern.sysusers
var Accounts []byte
