package node

import (
	"errors"
	"time"

	"saltern/internal/control"
	"saltern/master/cluster/wire"
	"saltern/master/crypt"
)

// Config of a Node. ID, Pub, ClusterPub and the functions are required.
type Config struct {
	ID    string // name and address of this master
	Pub   string // PEM of its master key
	Inc   string // another text for each start of the process
	Peers []Peer // cluster_peers; Pub is "" when the key is not on the folder
	// ClusterPub is the cluster's public key on the shared folder, "" when
	// there is none; then Fingerprint must tell which one to believe.
	ClusterPub string
	// Fingerprint reports whether a PEM is the pinned one
	// (cluster_pub_fingerprint); nil when nothing is pinned.
	Fingerprint func(pem string) bool
	// Found lets this master make the record when there is none: nobody
	// else has made the cluster yet, or it belongs to it already.
	Found bool
	// Key and Seed are what a record that this master makes starts with.
	Key, Seed string

	Secret string // cluster_secret
	// AllowEmptySecret lets masters join that show no secret.
	AllowEmptySecret bool
	SessionKey       crypt.Key // of this process, for Salt's masters

	PublishSession time.Duration // age at which the cluster AES key is replaced

	Token   func() string // another text of wire.TokenLen characters
	NewKey  func() string // text of a new cluster AES key
	NewSeed func() string // a new seed
	// Jitter returns a duration below d.
	Jitter func(d time.Duration) time.Duration
}

// Peer is a master that the configuration names.
type Peer = wire.Peer

// Times of the logic.
const (
	leaseTTL      = 15 * time.Second
	leaseMargin   = leaseTTL / 10
	leaseRenew    = leaseTTL / 3
	leaseStep     = 2 * time.Second // between candidates, by rank
	beatEvery     = time.Second
	aliveFor      = 5 * time.Second // without a beat a peer counts as gone
	loadEvery     = 5 * time.Second // reading the record
	loadJoining   = 2 * time.Second
	joinEvery     = 2 * time.Second // asking to join, growing to joinSlow
	joinSlow      = 10 * time.Second
	candidateFor  = time.Minute
	maxCandidates = 64
	announceGap   = 2 * time.Second
	storeRetry    = 500 * time.Millisecond
	intentFor     = 30 * time.Second // until a change is given up
	maxIntents    = 32
	failureWindow = time.Minute
	maxFailures   = 10 // wrong secrets in the window before joins wait
	perCandidate  = 3
)

// Phase is where a master stands.
type Phase uint8

// The phases.
const (
	Starting Phase = iota // the record has not been read yet
	Joining               // asks to be let in
	Active                // belongs to the cluster and may serve
	Removed               // was removed and must not serve
)

// String returns the word for status and logs.
func (p Phase) String() string { return [...]string{"starting", "joining", "active", "removed"}[p] }

// Source says where a message came from.
type Source struct {
	// ID is the member whose key the other end has proven; "" when nothing
	// is proven.
	ID string
	// Addr is the address of the other end.
	Addr string
}

// Input is what happens to a Node: Message, Loaded, Stored, Linked, Unlinked,
// KeyFile or Command.
type Input interface{ isInput() }

// Message is a message whose own proofs have been verified by package wire:
// one of wire.Discover, DiscoverReply, Join, JoinReply, JoinNotify, or
// SessionKey, Beat, Want, State, Refused and Gone.
type Message struct {
	From Source
	Msg  any
}

// Loaded is the shared record as it was read. Exists is false when there is
// none; Err says that it could not be read.
type Loaded struct {
	Record Record
	Exists bool
	Err    error
}

// Stored answers a Store. Without Err and Conflict it was done.
type Stored struct {
	ID       uint64
	Conflict bool
	Current  Record // at a conflict; the zero Record when there is none
	Err      error
}

// Linked says that a connection to a peer was made, Unlinked that it ended.
type Linked struct{ Peer string }

// Unlinked is the end of Linked.
type Unlinked struct{ Peer string }

// KeyFile says that the file .aes holds a key that is neither the current nor
// the previous one: a Salt master has rotated it.
type KeyFile struct{ Key string }

// Command is what an administrator or the master itself wants. The answer is
// a Done with the same ID.
type Command struct {
	ID     uint64
	Rotate bool            // replace the cluster AES key
	Remove control.Removal // remove a master
	// Stage makes the next secret, unless there is one; Commit, the
	// fingerprint of the next secret, has it take the place of the present one.
	Stage  bool
	Commit string
}

func (Message) isInput()  {}
func (Loaded) isInput()   {}
func (Stored) isInput()   {}
func (Linked) isInput()   {}
func (Unlinked) isInput() {}
func (KeyFile) isInput()  {}
func (Command) isInput()  {}

// Messages of Saltern's own. They go only to and from peers whose key is
// pinned, except Refused.
type (
	// SessionKey is a Salt master's announcement, or asks for ours to be
	// sent.
	SessionKey struct{ Key crypt.Key }
	// Beat tells peers that we live and what we know.
	Beat struct {
		Inc             string
		Version, KeyGen uint64
	}
	// Want asks for the record.
	Want struct{}
	// State brings the record.
	State struct{ Record Record }
	// Refused tells a joining master why it is not let in. It is only a
	// hint for people.
	Refused struct{ ReturnToken, Reason string }
	// Gone tells a master that it was removed.
	Gone struct{}
)

// Output is what a Node wants done: Send, Load, Store, Apply, Install,
// PeerKey, Fire, Done or Note.
type Output interface{ output() }

// Send is a message to a master. Pub is the key that the other end must
// have.
type Send struct {
	To, Pub string
	Msg     any
}

// Load asks for the record to be read.
type Load struct{}

// Store asks for the record to be replaced if its version is Expect (0: if
// there is none).
type Store struct {
	ID     uint64
	Expect uint64
	Record Record
}

// Apply is a newer record: dial its members, take its keys.
type Apply struct {
	Record Record
	Phase  Phase
}

// Install brings what a Salt master handed over when it let us in.
type Install struct{ Reply wire.JoinReply }

// PeerKey is the session key of a Salt master.
type PeerKey struct {
	Peer string
	Key  crypt.Key
}

// Done answers a Command.
type Done struct {
	ID  uint64
	Err error
}

// Note is something that people should know, once.
type Note struct {
	Text   string
	Peer   string
	Reason string
	Warn   bool
}

func (Send) output()    {}
func (Load) output()    {}
func (Store) output()   {}
func (Apply) output()   {}
func (Install) output() {}
func (PeerKey) output() {}
func (Done) output()    {}
func (Note) output()    {}

// Errors of commands.
var (
	ErrNotMember = errors.New("no such member of the cluster")
	ErrLast      = errors.New("the last master cannot be removed")
	errBusy      = errors.New("too many changes of the cluster are under way")
	ErrNotStaged = errors.New("the next secret is another one by now, or there is none")
	errTimeout   = errors.New("the shared record could not be changed in time")
	ErrInactive  = errors.New("this master does not belong to the cluster")
)
