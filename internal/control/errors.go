package control

import "net/http"

// Code says why a master refused; decisions rest on it, never on the text.
type Code string

// The codes of refusals.
const (
	CodeFailed       Code = "failed"         // it was tried
	CodeBadRequest   Code = "bad-request"    // it cannot be read
	CodeNoSuchMember Code = "no-such-member" // of the cluster
	CodeLastMember   Code = "last-member"
	CodeNotStaged    Code = "not-staged" // the next secret is another one, or there is none
	CodeNoCluster    Code = "no-cluster" // the master belongs to none
	CodeNoSuchRemote Code = "no-such-remote"
	CodeNoSuchToken  Code = "no-such-token"
	CodeBusy         Code = "busy"  // too much was asked for
	CodeState        Code = "state" // what is asked for does not fit how the nodes are
)

// ErrNoSuchMember matches refusals with [CodeNoSuchMember].
var ErrNoSuchMember error = &Error{Code: CodeNoSuchMember, Text: "no such member of the cluster"}

// ErrNoSuchRemote matches refusals with [CodeNoSuchRemote].
var ErrNoSuchRemote error = &Error{Code: CodeNoSuchRemote, Text: "no such git remote is configured"}

// Error is a refusal of a master, or of a supervisor at its door.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"error"`
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Is reports whether target is a refusal with the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// status is the status of HTTP that goes with the code.
func (e *Error) status() int {
	switch e.Code {
	case CodeBadRequest:
		return http.StatusBadRequest
	case CodeNoSuchMember, CodeNoSuchRemote, CodeNoSuchToken:
		return http.StatusNotFound
	case CodeBusy:
		return http.StatusTooManyRequests
	case CodeLastMember, CodeNotStaged, CodeNoCluster, CodeState:
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}
