package node

import (
	"errors"
	"time"

	"saltern/internal/control"
	"saltern/master/cluster/wire"
	"saltern/master/crypt"
)

// Config configures a Node. ID, Pub, ClusterPub and Random are required.
type Config struct {
	ID    string // name of this master, and the address that peers dial
	Pub   string // PEM of the public half of its master key
	Inc   string // incarnation: a text that differs for each start of the process
	Peers []Peer // masters in cluster_peers; Pub is "" when the folder has no key
	// ClusterPub is the cluster's public key in the shared folder. If it is "", Fingerprint decides
	// whether a key is the right one.
	ClusterPub string
	// Fingerprint reports whether a PEM is the pinned key (cluster_pub_fingerprint). It may be nil:
	// no key is pinned.
	Fingerprint func(pem string) bool
	// Found allows this master to create the record if there is none. It is set if this master
	// founds the cluster or belongs to it already.
	Found bool
	// Key and Seed are the secrets in a record that this master creates.
	Key, Seed string

	// Secret is the option cluster_secret. It may be "": then a joining master of Saltern must
	// present a secret that only a reader of the shared record can derive.
	Secret string
	// AllowEmptySecret admits masters that present no secret while Secret is "".
	AllowEmptySecret bool
	SessionKey       crypt.Key // session key of this process, for Salt's masters

	PublishSession time.Duration // age at which the owner replaces the cluster AES key

	Random Random
}

// Random is the source of all unpredictable values of a Node.
type Random interface {
	// Token returns a new text of wire.TokenLen characters.
	Token() string
	// NewKey returns a new cluster AES key as text.
	NewKey() string
	// NewSeed returns a new seed of session keys.
	NewSeed() string
	// Jitter returns a duration between 0 and d.
	Jitter(d time.Duration) time.Duration
}

// Peer is a master that the configuration names.
type Peer = wire.Peer

// Times of the cluster logic.
const (
	leaseTTL = 12 * time.Second // an owner that does not renew loses the lease after this
	// leaseTTLUnnamed is the term of a lease that names no term: masters of older versions wrote
	// none.
	leaseTTLUnnamed = 15 * time.Second
	leaseMargin     = leaseTTL / 10 // how long before the end of leaseTTL the owner stops using the lease
	// leaseRenew is the age at which the owner renews the lease. The renewal may take as long as
	// writes to the volume stall when a copy is lost.
	leaseRenew = leaseTTL / 6
	// To take an expired lease, a master waits leaseStep longer for each Saltern master that
	// precedes it in the order of names.
	leaseStep     = 2 * time.Second
	beatEvery     = time.Second
	aliveFor      = 5 * beatEvery   // a peer without a beat for this time is treated as lost
	joinEvery     = 2 * time.Second // wait between two discovers; after a refusal the wait is joinSlow
	joinSlow      = 5 * joinEvery
	candidateFor  = time.Minute // how long a candidate may take to send its join
	maxCandidates = 64
	announceGap   = 2 * time.Second
	storeRetry    = 500 * time.Millisecond
	maxIntents    = 32
	maxFailures   = 10 // after so many wrong secrets within one minute, joins are refused
	perCandidate  = 3  // after so many wrong secrets, a candidate must send a new discover
)

// Phase is the state of a master's membership.
type Phase uint8

// The phases.
const (
	Starting Phase = iota // the node has not read the record yet
	Joining               // the node asks to be admitted
	Active                // the node belongs to the cluster, and its master may serve
	Removed               // the node was removed, and its master must not serve
)

// String returns the word for the phase in status and logs.
func (p Phase) String() string { return [...]string{"starting", "joining", "active", "removed"}[p] }

// Source is the sender of a message.
type Source struct {
	// ID is the name of the member as whom the other end has authenticated, or "".
	ID string
	// Addr is the address of the other end.
	Addr string
}

// Input is an event for a Node: Message, Loaded, Stored, Linked, Unlinked, KeyFile or Command.
type Input interface{ isInput() }

// Message is a message whose proofs package wire has verified: one of wire.Discover, DiscoverReply,
// Join, JoinReply, JoinNotify, or SessionKey, Beat, Want, State, Refused and Gone.
type Message struct {
	From Source
	Msg  any
}

// Loaded is the shared record as the caller has read it. Exists is false when there is none; Err is
// the reason why the caller could not read it.
type Loaded struct {
	Record Record
	Exists bool
	Err    error
}

// Stored is the result of a Store. If Err is nil and Conflict is false, the shared folder contains
// the record.
type Stored struct {
	ID       uint64
	Conflict bool
	Current  Record // the stored record after a conflict; the zero Record if no record is stored
	Err      error
}

// Linked reports that a connection to a peer was made.
type Linked struct{ Peer string }

// Unlinked reports that the connection to a peer ended.
type Unlinked struct{ Peer string }

// KeyFile reports that the file .aes contains a key that is neither the current nor the previous
// one, because a Salt master has rotated the key.
type KeyFile struct{ Key string }

// Command is an order of an administrator, or of the master itself. A Done with the same ID reports
// the result.
type Command struct {
	ID     uint64
	Rotate bool            // replace the cluster AES key
	Remove control.Removal // remove a master
	// Stage creates the next secret, unless there is one already. Commit is the fingerprint of the
	// next secret, which then becomes the current one; "" changes nothing.
	Stage  bool
	Commit string
	// Leave makes this master give back the lease, and never take it again. The master is about to
	// end.
	Leave bool
}

func (Message) isInput()  {}
func (Loaded) isInput()   {}
func (Stored) isInput()   {}
func (Linked) isInput()   {}
func (Unlinked) isInput() {}
func (KeyFile) isInput()  {}
func (Command) isInput()  {}

// Messages that only Saltern's masters send. All except Refused are sent only between peers whose
// keys are pinned.
type (
	// SessionKey carries the session key of a Salt master, or this master's session key in answer
	// to it.
	SessionKey struct{ Key crypt.Key }
	// Beat reports to peers that this master is alive and which versions of record and key it knows.
	Beat struct {
		Inc             string
		Version, KeyGen uint64
	}
	// Want asks a peer for the record.
	Want struct{}
	// State carries the record.
	State struct{ Record Record }
	// Refused tells a joining master the reason why it was not admitted, for that master's
	// administrator.
	Refused struct{ ReturnToken, Reason string }
	// Gone reports to a master that it was removed from the cluster.
	Gone struct{}
)

// Output is an action for the caller of a Node: Send, Load, Store, Apply, Install, PeerKey, Fire,
// Done or Note.
type Output interface{ output() }

// Send asks the caller to send a message to a master. Pub is the key that the other end must have.
type Send struct {
	To, Pub string
	Msg     any
}

// Load asks the caller to read the record.
type Load struct{}

// Store asks the caller to replace the record if the version of the stored record is Expect (0: if
// there is none).
type Store struct {
	ID     uint64
	Expect uint64
	Record Record
}

// Apply asks the caller to use a newer record: to dial the members in it and to use its keys.
type Apply struct {
	Record Record
	Phase  Phase
}

// Install carries the answer with which a Salt master admitted this master.
type Install struct{ Reply wire.JoinReply }

// PeerKey passes the session key of a Salt master to the caller.
type PeerKey struct {
	Peer string
	Key  crypt.Key
}

// Done is the result of a Command.
type Done struct {
	ID  uint64
	Err error
}

// Note is a message for the caller's log.
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
