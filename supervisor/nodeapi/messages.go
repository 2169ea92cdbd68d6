// Package nodeapi is the protocol in which the nodes of a cluster talk to each other about
// themselves: HTTP and JSON inside TLS 1.3 on one port (4521).
//
//	POST /v1/join/hello   a new machine asks for the cluster     proof.go
//	POST /v1/join/prove   the machine proves the secret, and may join
//	GET  /v1/table        the table of nodes                   all nodes
//	PUT  /v1/table        offers the next table                all nodes, nodes.CheckStep
//	GET  /v1/status       a summary of this node's status      all nodes
//	GET  /v1/marks        the marks of its disks               all nodes
//	POST /v1/ready, drain, leave, gone   changes the asking node's state in the table   all nodes
//	POST /v1/storage/certificate   signs a certificate for the volume   all nodes, storage.go
//	GET  /v1/storage/authority   the key that signs those certificates   serving nodes
//	GET  /v1/minions      what its master knows of minions     serving nodes
//	GET  /v1/git          the git remotes of its master        serving nodes, git.go
//	POST /v1/git/fetch    its master fetches now               serving nodes
//	GET  /v1/audit        its audit records                    serving nodes, audit.go
//	GET  /v1/events       the events that it saw               serving nodes, events.go
//	GET  /v1/course       its metrics of the last day          serving nodes, course.go
//	POST /v1/services/restart   restarts one of its services   serving nodes
//	POST /v1/files/newest       copies what is new on the volume  serving nodes
//	GET  /v1/options      the options of its master            serving nodes, options.go
//	POST /v1/options/check, try, back, keep                    serving nodes
//	GET  /v1/system       its system, for upgrades             serving nodes, system.go
//	POST /v1/tool         runs one of Salt's tools on its master   serving nodes, tool.go
//
// One table says which nodes may ask what, by role and state: access.go. Neither an arbiter nor a
// node that is still joining may ask about minions, tools, options and systems.
//
// A machine describes itself in each request (Saltern-Machine, keyuse.go). A machine that has the
// key of a node but is another machine may only read table, status and marks.
//
// No authority signs the certificates: the table of nodes has the hash of each node's key, and both
// ends of a connection compare the hash. An unauthenticated machine (stranger) may use only the two
// join routes, within a rate (limit.go). A removed node gets the answer that it was removed. Every
// message is bounded before it is decoded.
package nodeapi

import (
	"errors"
	"time"

	"saltern/supervisor/keyuse"
	"saltern/supervisor/nodes"
	"saltern/supervisor/options"
	"saltern/supervisor/status"
)

// protocol is the version of the join protocol. A machine can join only through a node with the
// same version; members of a cluster talk to each other whatever their versions are. New fields do
// not change the version. Protocol 1 sent a proof with which an attacker could check guesses of the
// secret.
const protocol = 2

// Bounds, in bytes unless they are times.
const (
	maxProve    = 64 << 10 // a request of a stranger that has not authenticated yet
	maxHello    = 8 << 10
	padding     = 24 << 10 // bytes added to a proof, so that it needs several packets and too small an MTU is noticed
	maxAnswer   = 1 << 20
	maxList     = 64 << 20 // a list of minions, audit records or events
	answerTakes = 15 * time.Second
)

type helloRequest struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	Cluster  string `json:"cluster"` // name of the cluster; empty: not known
	Nonce    string `json:"nonce"`
	Share    []byte `json:"share"` // share of the key exchange, see proof.go
	// Next requests an exchange with the secret that will replace the present one.
	Next bool `json:"next,omitempty"`
}

type helloReply struct {
	Protocol  int       `json:"protocol"`
	Version   string    `json:"version"`
	Nonce     string    `json:"nonce"`
	Share     []byte    `json:"share"`
	Key       string    `json:"key"` // content of cluster.pub
	Signature []byte    `json:"signature"`
	Time      time.Time `json:"time"`
}

type proveRequest struct {
	Proof []byte     `json:"proof"`
	Join  bool       `json:"join"` // false: do not join, only ask
	Node  nodes.Node `json:"node"`
	Ports []int      `json:"ports"` // ports of the asking machine that this node should try
	Pad   string     `json:"pad"`
}

type proveReply struct {
	Proof   []byte      `json:"proof"`
	Table   nodes.Table `json:"table"`
	Storage Storage     `json:"storage"`
	Time    time.Time   `json:"time"`
	Reach   []Reach     `json:"reach"`
	Pad     string      `json:"pad"`
}

// Storage says where the cluster keeps what its nodes share.
type Storage struct {
	Kind string `json:"kind"` // storage.kind, as in appliance.yaml
	Path string `json:"path"`
	// Arbiters reports whether this node's version supports arbiters. An older version would take
	// an arbiter for a node that serves minions.
	Arbiters bool `json:"arbiters,omitempty"`
}

// Reach is the result of dialling a port.
type Reach struct {
	Port  int    `json:"port"`
	Error string `json:"error,omitempty"` // empty: the machine answers at the port, even if only with a refusal
}

// Summary is the part of a node's status that the other nodes show in their status.
type Summary struct {
	Node     status.Node      `json:"node"`
	Setup    status.Setup     `json:"setup"`
	Version  string           `json:"version"`
	Time     time.Time        `json:"time"`
	Table    uint64           `json:"table"` // version of the node's table of nodes
	Problems []status.Problem `json:"problems"`
	// Secret and NextSecret are the fingerprints of the cluster's secrets that are on the node's
	// disk; see control.Secrets.
	Secret     string `json:"secret,omitempty"`
	NextSecret string `json:"nextSecret,omitempty"`
	// Heads are the heads of the node's audit record, see [audit.ParseHeads].
	Heads string `json:"heads,omitempty"`
	// Life identifies the running start of the node's supervisor.
	Life string `json:"life,omitempty"`
	// Uses lists keys of nodes that other machines use. It includes only machines that have sent
	// requests to this node. The caller checks the reports with [keyuse.Report.Check].
	Uses []keyuse.Report `json:"uses,omitempty"`
}

// Codes of faults, for programs.
const (
	codeProtocol = "protocol"
	codeCluster  = "cluster"
	codeSecret   = "secret"
	codeName     = "name"
	codeRemoved  = "removed"
	codeStranger = "stranger"
	codeBusy     = "busy"
	codeAccess   = "access"
	codeStorage  = "storage"
	codeRole     = "role"
	codeRequest  = "request"
	codeSelf     = "fault"
	codeChanged  = "optionsChanged"
	codeTrying   = "optionsTrying"
	codeNotHeld  = "optionsNotHeld"
)

// Errors that callers distinguish. Each is wrapped in an error with the text from the other end.
var (
	ErrProtocol = errors.New("the cluster runs another version")
	ErrCluster  = errors.New("that is another cluster")
	ErrSecret   = errors.New("the secret is not the cluster's")
	ErrName     = errors.New("the name or address is taken")
	ErrRemoved  = errors.New("this node was removed from the cluster")
	errStranger = errors.New("the cluster does not know this node")
	// ErrAccess means that a node of this role, or in this state, may not use a route.
	ErrAccess  = errors.New("this node may not ask that")
	ErrBusy    = errors.New("too many attempts")
	ErrStorage = errors.New("the cluster's shared storage cannot be used now")
	ErrRole    = errors.New("the cluster does not take this machine in that role")
	ErrProof   = errors.New("the machine there could not prove that it is the cluster")
	// ErrUnproven means that the peer received our proof and closed the connection without sending
	// its own. An attacker who guesses secrets would do the same, so no program tries again by
	// itself.
	ErrUnproven = errors.New("the machine there ended the connection when it had to prove that it is the cluster")
)

var codes = map[string]error{
	codeProtocol: ErrProtocol,
	codeCluster:  ErrCluster,
	codeSecret:   ErrSecret,
	codeName:     ErrName,
	codeRemoved:  ErrRemoved,
	codeStranger: errStranger,
	codeBusy:     ErrBusy,
	codeStorage:  ErrStorage,
	codeRole:     ErrRole,
	codeAccess:   ErrAccess,
	codeChanged:  options.ErrChanged,
	codeTrying:   options.ErrTrying,
	codeNotHeld:  options.ErrNotHeld,
}

// fault is the JSON body of a response that reports an error.
type fault struct {
	Code  string `json:"code"`
	Error string `json:"error"`
	// Protocol is the protocol of the node that sends the fault. Only a fault with codeProtocol has
	// it; nodes of protocol 1 omit it. Next reports whether the cluster has a next secret, which
	// the caller may try. Only a fault with codeSecret has it.
	Protocol int  `json:"protocol,omitempty"`
	Next     bool `json:"next,omitempty"`
	http     int
}
