package rpc

import (
	"errors"
	"net/http"
)

// Code says why a request was refused. Decisions rest on it, never on the text.
type Code string

// The codes of every program.
const (
	CodeFailed       Code = "failed"        // the act was tried
	CodeBadRequest   Code = "bad-request"   // it cannot be read
	CodeNotPermitted Code = "not-permitted" // to whoever asks
	CodeNotFound     Code = "not-found"     // the object of the request
	CodeState        Code = "state"         // the request does not fit how the nodes are
	CodeTooLarge     Code = "too-large"
	CodeConfig       Code = "config" // the configuration in the request is wrong
	CodeBusy         Code = "busy"   // too much was asked for
)

// The codes of a master.
const (
	CodeNoSuchMember Code = "no-such-member" // of the cluster
	CodeLastMember   Code = "last-member"
	CodeNotStaged    Code = "not-staged" // the next secret is another one, or there is none
	CodeNoCluster    Code = "no-cluster" // the master belongs to none
	CodeNoSuchRemote Code = "no-such-remote"
	CodeNoSuchToken  Code = "no-such-token"
)

// Status returns the status of HTTP of an answer with the code.
func (c Code) Status() int {
	switch c {
	case CodeBadRequest:
		return http.StatusBadRequest
	case CodeNotPermitted:
		return http.StatusForbidden
	case CodeNotFound, CodeNoSuchMember, CodeNoSuchRemote, CodeNoSuchToken:
		return http.StatusNotFound
	case CodeState, CodeLastMember, CodeNotStaged, CodeNoCluster:
		return http.StatusConflict
	case CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeConfig:
		return http.StatusUnprocessableEntity
	case CodeBusy:
		return http.StatusTooManyRequests
	}
	return http.StatusInternalServerError
}

// codeOf returns the code of an answer that has none: it comes from a program of an earlier
// version.
func codeOf(status int) Code {
	for _, c := range []Code{
		CodeBadRequest, CodeNotPermitted, CodeNotFound, CodeState, CodeTooLarge, CodeConfig, CodeBusy,
	} {
		if c.Status() == status {
			return c
		}
	}
	return CodeFailed
}

// Error is a refusal, as it goes over the wire and on both sides of it.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"error"`
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Is reports whether target is a refusal, or a kind of refusals, with the same code.
func (e *Error) Is(target error) bool {
	switch target := target.(type) {
	case *Error:
		return target.Code == e.Code
	case *Kind:
		return target.Code == e.Code
	}
	return false
}

// Kind is an error to be wrapped and asked for: of its own program, whose text follows, and of
// refusals with its code.
type Kind struct {
	Code Code
	Text string
}

// Error returns the text.
func (k *Kind) Error() string { return k.Text }

// Explain returns the refusal that answers with err: the first [Error] in its chain as it is,
// else the whole text with the code of the first [Kind], else with [CodeFailed].
func Explain(err error) *Error {
	if refusal, ok := errors.AsType[*Error](err); ok {
		return refusal
	}
	code := CodeFailed
	if kind, ok := errors.AsType[*Kind](err); ok {
		code = kind.Code
	}
	return &Error{Code: code, Text: err.Error()}
}
