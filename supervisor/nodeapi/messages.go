// Package nodeapi is how the nodes of a cluster speak with each other about
// themselves: HTTP and JSON inside TLS 1.3 on one port (4521).
//
//	POST /v1/join/hello   a stranger asks who is there        proof.go
//	POST /v1/join/prove   it proves the secret, and may join
//	GET  /v1/table        the table of nodes                   all nodes
//	PUT  /v1/table        the next table is offered            all nodes, nodes.CheckStep
//	GET  /v1/status       how this node does                   all nodes
//	GET  /v1/marks        how far its disks have come          all nodes
//	POST /v1/ready, drain, leave, gone   the asking node's state in the table   all nodes
//	POST /v1/storage/certificate   one for the shared volume   all nodes, storage.go
//	GET  /v1/storage/authority   signs the volume's certificates   serving nodes
//	GET  /v1/minions      what its master knows of minions     serving nodes
//	GET  /v1/git          the git remotes of its master        serving nodes, git.go
//	POST /v1/git/fetch    its master fetches now               serving nodes
//	GET  /v1/audit        what was done through it, by whom    serving nodes, audit.go
//	GET  /v1/events       what it saw                          serving nodes, events.go
//	GET  /v1/course       how it did in the last day           serving nodes, course.go
//	POST /v1/services/restart   one of its services            serving nodes
//	POST /v1/files/newest       copies what is new on the volume  serving nodes
//	GET  /v1/options      the options of its master            serving nodes, options.go
//	POST /v1/options/check, try, back, keep                    serving nodes
//	GET  /v1/system       its system, for upgrades             serving nodes, system.go
//	POST /v1/tool         one of Salt's tools, by its master   serving nodes, tool.go
//
// Which nodes may ask what, by role and state, is one table: access.go. An arbiter, and
// who is only joining, have nothing to do with minions, tools, options and systems.
//
// A machine says with each request what it is (Saltern-Machine, keyuse.go): one that has the
// key of a node and is not in its place may read table, status and marks, and nothing else.
//
// Certificates are signed by nobody: the hash of each node's key stands in the
// table of nodes, and connections are pinned to it at both ends. A stranger
// reaches the two join routes and nothing else, within a rate (limit.go); a
// removed node is told so. Every message is bounded before it is decoded.
package nodeapi

import (
	"errors"
	"time"

	"saltern/supervisor/keyuse"
	"saltern/supervisor/nodes"
	"saltern/supervisor/options"
	"saltern/supervisor/status"
)

// protocol is the version of joining. A machine joins through a node of the
// same one; members of a cluster speak with each other whatever it is. New
// fields do not change it. Protocol 1 sent a proof that could be guessed at.
const protocol = 2

// Bounds.
const (
	maxProve    = 64 << 10 // of somebody who has proven nothing yet
	maxHello    = 8 << 10
	padding     = 24 << 10 // of a proof: more than a few packets, so that a small MTU shows
	maxAnswer   = 1 << 20
	maxList     = 64 << 20 // of a list of minions
	answerTakes = 15 * time.Second
)

type helloRequest struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	Cluster  string `json:"cluster"` // empty: not known
	Nonce    string `json:"nonce"`
	Share    []byte `json:"share"` // of the exchange, see proof.go
	// Next asks for the secret that is to follow the present one.
	Next bool `json:"next,omitempty"`
}

type helloReply struct {
	Protocol  int       `json:"protocol"`
	Version   string    `json:"version"`
	Nonce     string    `json:"nonce"`
	Share     []byte    `json:"share"`
	Key       string    `json:"key"` // cluster.pub
	Signature []byte    `json:"signature"`
	Time      time.Time `json:"time"`
}

type proveRequest struct {
	Proof []byte     `json:"proof"`
	Join  bool       `json:"join"` // false: only look
	Node  nodes.Node `json:"node"`
	Ports []int      `json:"ports"` // to be tried on the machine that asks
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
	Kind string `json:"kind"` // as in appliance.yaml
	Path string `json:"path"`
	// Arbiters: this node knows what an arbiter is. One of a version before would
	// count it among those that serve minions.
	Arbiters bool `json:"arbiters,omitempty"`
}

// Reach is the result of dialling a port.
type Reach struct {
	Port  int    `json:"port"`
	Error string `json:"error,omitempty"` // empty: the machine answers there, if only to refuse
}

// Summary is the state of a node, as the others show it in their status.
type Summary struct {
	Node     status.Node      `json:"node"`
	Setup    status.Setup     `json:"setup"`
	Version  string           `json:"version"`
	Time     time.Time        `json:"time"`
	Table    uint64           `json:"table"` // version of its table
	Problems []status.Problem `json:"problems"`
	// Secret and NextSecret name the cluster's secrets that are on its disk; see
	// control.Secrets.
	Secret     string `json:"secret,omitempty"`
	NextSecret string `json:"nextSecret,omitempty"`
	// Heads are the heads of its audit record, see [audit.ParseHeads].
	Heads string `json:"heads,omitempty"`
	// Life is the running start of its supervisor.
	Life string `json:"life,omitempty"`
	// Uses are the keys that are not used by their nodes alone, as far as it was asked by
	// those machines. A caller checks them: [keyuse.Report.Check].
	Uses []keyuse.Report `json:"uses,omitempty"`
}

// What went wrong with a request, for programs.
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

// Errors that callers tell apart. Each comes wrapped with what the other side
// said.
var (
	ErrProtocol = errors.New("the cluster runs another version")
	ErrCluster  = errors.New("that is another cluster")
	ErrSecret   = errors.New("the secret is not the cluster's")
	ErrName     = errors.New("the name or address is taken")
	ErrRemoved  = errors.New("this node was removed from the cluster")
	errStranger = errors.New("the cluster does not know this node")
	// ErrAccess means that a node of this role, or in this state, may not ask that.
	ErrAccess  = errors.New("this node may not ask that")
	ErrBusy    = errors.New("too many attempts")
	ErrStorage = errors.New("the cluster's shared storage cannot be used now")
	ErrRole    = errors.New("the cluster does not take this machine in that role")
	ErrProof   = errors.New("the machine there could not prove that it is the cluster")
	// ErrUnproven: it was given our confirmation and ended the talk. That is all
	// that a guess needs, so that nothing tries again by itself.
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

// fault is an error as it goes over the wire.
type fault struct {
	Code  string `json:"code"`
	Error string `json:"error"`
	// protocol is the sender's, with codeProtocol; nodes of protocol 1 leave it
	// out. Next says with codeSecret that another secret is on its way.
	Protocol int  `json:"protocol,omitempty"`
	Next     bool `json:"next,omitempty"`
	http     int
}
