package client

import (
	"errors"
	"io/fs"
	"syscall"

	"saltern/master/internal/source"
	"saltern/master/value"
)

// Kind classifies the errors that a user sees.
type Kind uint8

const (
	// General covers every failure for which there is no other Kind.
	General Kind = iota
	// Authentication means that the master does not accept the caller's identity.
	Authentication
	// Authorization means that the master does not permit the command.
	Authorization
	// Invocation means that the command line is wrong.
	Invocation
	// Unavailable means that the master does not run, or does not answer in time.
	Unavailable
	// Busy means that the master could not check the caller's identity at this moment. The caller
	// may try again.
	Busy
)

// Error is an error whose text is meant for users, in Salt's wording.
type Error struct {
	Kind    Kind
	Message string
}

func (e *Error) Error() string { return e.Message }

var (
	// ErrNoMinions means that the target matches no accepted minion.
	ErrNoMinions error = &Error{Message: "No minions matched the target. No command was sent, no jid was assigned."}
	// ErrNoJob means that the master accepted the request but started no job.
	ErrNoJob = errors.New("the master started no job")
)

func errContact() error {
	return &Error{Kind: Unavailable, Message: "The salt master could not be contacted. Is master running?"}
}

// errEvents returns the error of a client that cannot read the master's events and therefore would
// get no returns.
func errEvents(err error) error {
	const what = "cannot listen to the master's events: "
	text := what + err.Error()
	switch {
	case errors.Is(err, fs.ErrPermission):
		text = what + "this user may not; run it as root: sudo salt ..."
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		text = what + "the master of this node does not run (on a node: applianced status)"
	}
	return &Error{Kind: Unavailable, Message: text}
}

// errHungUp returns the error for a master that ended during a request, or that did not answer
// until the client closed the connection.
func errHungUp() error {
	return &Error{
		Kind: Unavailable,
		Message: "The Salt master of this node does not answer at the moment. What was asked may have been done: " +
			"look before you try again (on a node: applianced status)",
	}
}

func errLate() error {
	return &Error{Kind: Unavailable, Message: "Salt request timed out. The master is not responding. You " +
		"may need to run your command with `--async` in order to " +
		"bypass the congested event bus. With `--async`, the CLI tool " +
		"will print the job id (jid) and exit immediately without " +
		"listening for responses. You can then use " +
		"`salt-run jobs.lookup_jid` to look up the results of the job " +
		"in the job cache later."}
}

// ErrorIn returns the error that an answer of the master contains (text or {name, message}) as an
// *[Error]. It returns nil if the answer contains none.
func ErrorIn(answer *value.Map) error {
	v, _ := answer.Get("error")
	if v == nil {
		return nil
	}
	m, ok := v.(*value.Map)
	if !ok {
		s, _ := v.(string)
		return &Error{Kind: General, Message: s}
	}
	return &Error{Kind: kindOf(m.Str("name"), answer), Message: m.Str("message")}
}

func kindOf(name string, answer *value.Map) Kind {
	if answer.Bool(source.BusyField) {
		return Busy
	}

	switch name {
	case "AuthenticationError", "TokenAuthenticationError", "EauthAuthenticationError", "UserAuthenticationError":
		if answer.Bool(source.ProvenField) {
			return Authorization
		}
		return Authentication
	case "AuthorizationError":
		return Authorization
	case "SaltInvocationError":
		return Invocation
	}

	return General
}
