package client

import (
	"context"

	"saltern/master/value"
)

// Wheel calls a wheel function of the master and returns its result. cred holds credentials or a
// token; if cred is empty, the client sends the key of the calling user. The error is an *[Error] if
// the master refuses the call or the function fails.
func (c *Client) Wheel(ctx context.Context, fun string, named, cred *value.Map) (any, error) {
	load := c.signed(value.NewMap("cmd", "wheel", "fun", fun, "arg", []any{}, "kwarg", named), cred)
	reply, err := c.sendRequest(ctx, load, c.cfg.Timeout)
	if err != nil {
		return nil, err
	}

	m, _ := reply.(*value.Map) // an old master answers with the text of an error
	if err := ErrorIn(m); err != nil {
		return nil, err
	}

	data := m.Map("data")
	ret := data.Value("return")
	if data.Len() == 0 {
		return nil, &Error{Message: "the master does not call wheel functions for this user: " + value.Repr(reply)}
	}
	if ok, has := data.Get("success"); has && ok == false {
		return nil, &Error{Message: value.Str(ret)}
	}

	return ret, nil
}
