package client

import (
	"errors"

	"saltern/master/value"
)

// Kind sorts the errors that a user sees.
type Kind uint8

const (
	// General covers everything that went wrong on the way.
	General Kind = iota
	// Authentication means that the master does not know us.
	Authentication
	// Authorization means that the master does not let us.
	Authorization
	// Invocation means that the command line is at fault.
	Invocation
	// Unavailable means that the master is not there, or does not answer in time.
	Unavailable
)

// Error is an error whose text is meant for the user, in Salt's words.
type Error struct {
	Kind    Kind
	Message string
}

func (e *Error) Error() string { return e.Message }

var (
	// ErrNoMinions says that the target matches no accepted minion.
	ErrNoMinions error = &Error{Message: "No minions matched the target. No command was sent, no jid was assigned."}
	// ErrNoJob says that the master took the request and started no job.
	ErrNoJob = errors.New("the master started no job")
)

func errContact() error {
	return &Error{Kind: Unavailable, Message: "The salt master could not be contacted. Is master running?"}
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

// ErrorOf turns the error of an answer, text or {name, message}, into an *[Error].
func ErrorOf(v any) error {
	m, ok := v.(*value.Map)
	if !ok {
		s, _ := v.(string)
		return &Error{Kind: General, Message: s}
	}
	e := &Error{Kind: General, Message: m.Str("message")}
	switch m.Str("name") {
	case "AuthenticationError", "TokenAuthenticationError", "EauthAuthenticationError", "UserAuthenticationError":
		e.Kind = Authentication
	case "AuthorizationError":
		e.Kind = Authorization
	case "SaltInvocationError":
		e.Kind = Invocation
	}
	return e
}
