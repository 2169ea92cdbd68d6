// Package audit keeps the record of who did what from where. Each program writes what
// was done through it to files of its node, lines of JSON, before anybody else hears
// of it; a node answers for the others by asking them.
//
// A folder holds several kinds of files ([shelf]), by who can cause what stands in them:
// acts of administrators, jobs of root, what limited users do, what they are refused, and
// what anybody causes who reaches a port. Each kind is bounded in bytes and age; its
// oldest go. Limited users and strangers have rates as well, so that nobody drives out an
// act of before.
//
// The records of each kind are a chain of hashes (chain.go), and where it ends is told to
// others (heads.go). [Verify] finds what is missing or was changed.
//
// Several programs of one account may write to one folder at the same time (the
// master and salt-key). The folder must be on a disk of the machine itself: locks are
// taken (flock), which the shared volume must never see.
//
// Text from elsewhere is bounded and made safe when a record is written and again
// when it is read, for the account of the master owns its files and may be hostile.
// docs/decisions/0015-audit.md says what is promised.
package audit
