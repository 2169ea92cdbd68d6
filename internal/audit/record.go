package audit

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"saltern/internal/printable"
)

// Result is the outcome of an act.
type Result string

// The results of an act. An act that takes time, or that may end the program which carries it out,
// gets two records with the same [Record.Op]: Asked before it begins, and later its outcome.
const (
	Asked   Result = "asked"
	Started Result = "started" // a job or a runner was started; the job cache has its result
	OK      Result = "ok"
	Failed  Result = "failed"  // the act was tried and failed
	Refused Result = "refused" // the act was not tried
)

// Proof is the way in which the actor was authenticated. The strongest proof comes first.
type Proof string

// The proofs.
const (
	Login    Proof = "login"    // the kernel's login uid of the process, which sudo and su do not change
	Sudo     Proof = "sudo"     // SUDO_USER in the environment of a process of root, which root can change
	Process  Proof = "process"  // the uid of the process
	Key      Proof = "key"      // the key file of a user of the master's host; root's key file allows any name
	Token    Proof = "token"    // a token of external authentication
	Password Proof = "password" // external authentication
	Autosign Proof = "autosign" // no person: a rule of the configuration
	Setting  Proof = "setting"  // no person: a setting of the node, such as its upgrade window
	Secret   Proof = "secret"   // the secret of the cluster: a machine that joins
	Peer     Proof = "node"     // another node of the cluster, by its key
	Minion   Proof = "minion"   // a minion, by its key
	Unproven Proof = "none"     // no proof: the name is only a claim
)

// Actor is the person or program that acted, and where the act came from.
type Actor struct {
	User  string `json:"user"`
	Proof Proof  `json:"proof"`
	// As is the user with whose rights the actor acted, if that is another user; mostly root.
	As    string `json:"as,omitempty"`
	UID   *int   `json:"uid,omitempty"` // uid of the process, if it runs on this node
	Eauth string `json:"eauth,omitempty"`
	// From is an IP address, or "local" for a process of the node.
	From string `json:"from"`
	// Via is the program that forwarded the request: salt-api.
	Via string `json:"via,omitempty"`
	// Limited marks an actor who does not have all rights. His records are rate-limited, and most
	// of them go to a separate book, see [shelfOf].
	Limited bool `json:"limited,omitempty"`
}

// Local is [Actor.From] of a process of the node.
const Local = "local"

// Record is one act or attempt.
type Record struct {
	Time    time.Time `json:"time"`
	Node    string    `json:"node"`
	Program string    `json:"program"`
	Actor
	Action   string `json:"action"`           // such as job.publish, key.accept
	Object   string `json:"object,omitempty"` // object of the action: a target, a minion, a node, a user
	Function string `json:"function,omitempty"`
	Minions  int    `json:"minions,omitempty"` // number of minions of a job
	JID      string `json:"jid,omitempty"`
	Result   Result `json:"result"`
	Detail   string `json:"detail,omitempty"` // more about the object, or the error
	Op       string `json:"op,omitempty"`
	// Lost is how many of this program's records before this record were lost, because the disk did
	// not take them or strangers caused too many.
	Lost uint64 `json:"lost,omitempty"`
	// More is how many further records of this actor the rate limit omitted. Kinds counts the
	// omitted records by action, function and result.
	More  uint64            `json:"more,omitempty"`
	Kinds map[string]uint64 `json:"kinds,omitempty"`

	// First and Prev are set only in the record that begins a file, see chain.go. First is the
	// number of the oldest record that was kept at that time. Prev is the hash of the previous
	// record.
	First uint64 `json:"first,omitempty"`
	Prev  string `json:"prev,omitempty"`
	// Seq numbers the records of a book from 1. Chain is the hash over this record and the Chain of
	// the previous one. Files of older versions, which wrote no chain, have neither.
	Seq   uint64 `json:"seq,omitempty"`
	Chain string `json:"chain,omitempty"`

	// Stranger marks a record that anybody can cause without authentication.
	Stranger bool `json:"-"`
}

// Bounds of a record, in bytes unless a comment says otherwise. All text may be untrusted.
const (
	maxName   = 256
	maxObject = 512
	maxDetail = 1024
	maxKind   = 100 // one key of Kinds
	maxKinds  = 16  // number of keys in Kinds; further kinds are counted together
	// maxLine bounds a line to read. Written lines are shorter.
	maxLine = 16 << 10
)

// NewOp returns a name that links the record of a request to the record of its outcome.
func NewOp() string { return strings.ToLower(rand.Text()[:16]) }

// bounded returns the record with all text cut to its bounds and made safe for one line of a
// terminal.
func (r Record) bounded() Record {
	for _, f := range []struct {
		text *string
		most int
	}{
		{&r.Node, maxName},
		{&r.Program, maxName},
		{&r.User, maxName},
		{(*string)(&r.Proof), 32},
		{&r.As, maxName},
		{&r.Eauth, maxName},
		{&r.From, maxName},
		{&r.Via, maxName},
		{&r.Action, maxName},
		{&r.Object, maxObject},
		{&r.Function, maxObject},
		{&r.JID, 64},
		{(*string)(&r.Result), 32},
		{&r.Detail, maxDetail},
		{&r.Op, 64},
	} {
		*f.text = printable.Brief(redact(clipText(*f.text, 4*f.most)), f.most)
	}
	r.Minions = max(r.Minions, 0)
	r.Kinds = cleanKinds(r.Kinds)
	r.Prev, r.Chain = cleanHash(r.Prev), cleanHash(r.Chain)
	return r
}

// cleanKinds returns kinds cut to their bounds. A hostile file may hold any number of them.
func cleanKinds(kinds map[string]uint64) map[string]uint64 {
	if len(kinds) == 0 {
		return nil
	}

	out := map[string]uint64{}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		name := printable.Brief(clipText(kind, 4*maxKind), maxKind)
		if len(out) >= maxKinds {
			name = otherKinds
		}
		out[name] += kinds[kind]
	}
	return out
}

// cleanHash returns s if it has the form of a chain hash, otherwise "".
func cleanHash(s string) string {
	if len(s) != hashLen || strings.Trim(s, "0123456789abcdef") != "" {
		return ""
	}
	return s
}

// redact returns s without the user names and passwords of URLs, such as those of git remotes.
func redact(s string) string {
	at := strings.Index(s, "://")
	if at < 0 {
		return s
	}
	host := s[at+3:]
	if end := strings.IndexAny(host, "/ \t\n?#"); end >= 0 {
		host = host[:end]
	}
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		return s[:at+3] + "***" + host[i:] + redact(s[at+3+len(host):])
	}
	return s[:at+3] + redact(s[at+3:])
}

// clipText returns the first bytes of a text, which bounds the work of making it safe.
func clipText(s string, maxBytes int) string { return s[:min(len(s), maxBytes)] }

// Names returns a list of ids as a text for [Record.Object]. Of a long list it names the first 20
// and counts the rest.
func Names(ids []string) string {
	const shown = 20
	text := strings.Join(ids[:min(len(ids), shown)], ", ")
	if n := len(ids) - shown; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// ParseNames reads the text of [Names]. whole is false if the text lacks ids.
func ParseNames(text string) (ids []string, whole bool) {
	text, _, more := strings.Cut(text, " and ")
	whole = !more && !strings.HasSuffix(text, clipMark)
	return strings.Split(text, ", "), whole
}

// clipMark ends a text that was too long for its field.
const clipMark = "…"

// Ended returns the record of a request's outcome. err is why the request failed, or nil.
func (r Record) Ended(err error) Record {
	r.Time, r.Result = time.Time{}, OK
	if err != nil {
		r.Result, r.Detail = Failed, err.Error()
	}
	return r
}
