// Package send brings messages to their destinations. A Sender is used by one goroutine.
package send

import (
	"context"
	"errors"
	"time"

	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
)

// Timeout bounds one try, from the connection to the answer.
const Timeout = 15 * time.Second

// ErrRefused means that the destination will refuse the message each time.
var ErrRefused = errors.New("the destination refuses this message")

// LaterError means that the destination has asked for a pause.
type LaterError struct {
	Err   error
	After time.Duration
}

// Error returns the text of the error below.
func (e *LaterError) Error() string { return e.Err.Error() }

// Unwrap returns the error below.
func (e *LaterError) Unwrap() error { return e.Err }

// PartlyError means that the message was accepted, but not for all receivers.
type PartlyError struct{ Err error }

// Error returns the text of the error below.
func (e *PartlyError) Error() string { return "not all receivers get it: " + e.Err.Error() }

// Unwrap returns the error below.
func (e *PartlyError) Unwrap() error { return e.Err }

// Sender sends messages to one destination. Its errors contain no secret.
type Sender interface {
	// Send returns nil when the destination has accepted the message.
	Send(ctx context.Context, m *alert.Message) error
}

// New returns the Sender of a destination. That of a destination of no kind fails each time.
func New(d *rules.Destination) Sender {
	switch {
	case d.Web != nil:
		return &web{to: d.Web}
	case d.Mail != nil:
		return &mailer{to: d.Mail}
	case d.Syslog != nil:
		return &syslog{to: d.Syslog}
	}
	return nowhere{}
}

var errNowhere = errors.New("the destination is no web hook, mail server or syslog")

// nowhere is the Sender of a destination of no kind.
type nowhere struct{}

// Send implements Sender.
func (nowhere) Send(context.Context, *alert.Message) error { return errNowhere }
