package rpc

import (
	"errors"
	"net/http"
)

// Code says why a request was refused. Callers decide by the code, never by the text.
type Code string

// The codes of every program.
const (
	CodeFailed       Code = "failed"        // the request was tried and failed
	CodeBadRequest   Code = "bad-request"   // the request cannot be read
	CodeNotPermitted Code = "not-permitted" // the caller may not do this
	CodeNotFound     Code = "not-found"     // the object of the request does not exist
	CodeState        Code = "state"         // the state of the nodes does not allow the request
	CodeTooLarge     Code = "too-large"
	CodeConfig       Code = "config" // the configuration in the request is wrong
	CodeBusy         Code = "busy"   // too many requests at once
)

// The codes of a master.
const (
	CodeNoSuchMember Code = "no-such-member" // the cluster has no such member
	CodeLastMember   Code = "last-member"
	CodeNotStaged    Code = "not-staged" // the next secret has another fingerprint, or there is none
	CodeNoCluster    Code = "no-cluster" // the master belongs to no cluster
	CodeNoSuchRemote Code = "no-such-remote"
	CodeNoSuchToken  Code = "no-such-token"
)

// Status returns the HTTP status of an answer with the code.
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

// codeOf returns the code for an HTTP status. Answers of earlier versions have no code.
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

// Error is a refusal. The server's handler returns it, the answer carries it, and the client's call
// returns it.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"error"`
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Is reports whether target is an *Error or a *Kind with the code of e.
func (e *Error) Is(target error) bool {
	switch target := target.(type) {
	case *Error:
		return target.Code == e.Code
	case *Kind:
		return target.Code == e.Code
	}
	return false
}

// Kind is an error that programs wrap. errors.Is finds it in an error that wraps it, and in an
// [Error] with its code, which may come from another program.
type Kind struct {
	Code Code
	Text string
}

// Error returns the text.
func (k *Kind) Error() string { return k.Text }

// Explain returns the refusal with which a server answers err: the first [Error] in its chain,
// otherwise err's text with the code of the first [Kind], or with [CodeFailed]. It never returns
// nil.
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
