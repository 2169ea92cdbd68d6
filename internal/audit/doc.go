// Package audit keeps the record of who did what from where. Each program writes the acts made
// through it to files of its node, as lines of JSON, before anybody else hears of them. A node
// collects the records of the others by asking them.
//
// A folder holds several kinds of files ([shelf]), divided by who can cause their records: acts of
// administrators, jobs of root, acts of limited users, refusals, and what anybody can cause who
// reaches a port. Each kind is bounded in bytes and age, and its oldest files are removed. Limited
// users and strangers also have rates, so that nobody can push out older acts.
//
// The records of each kind are a chain of hashes (chain.go), and others are told where it ends
// (heads.go). [Verify] finds what is missing or was changed.
//
// Several programs of one account may write to one folder at the same time (the master and
// salt-key). The folder must be on a disk of the machine itself, because the package locks files
// (flock), and the shared volume must never see such locks.
//
// Text from elsewhere is bounded and made safe when a record is written, and again when it is
// read, because the account of the master owns its files and may be hostile.
// docs/decisions/0015-audit.md states the guarantees.
package audit
