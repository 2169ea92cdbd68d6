package api

import (
	"errors"
	"io"
	"net/url"
	"strconv"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/rpc"
	"saltern/supervisor/history"
)

const (
	defaultLines = 50
	maxLines     = 200    // lines of output of a service
	maxLast      = 10_000 // highest LogQuery.Last: lines of one page of a log
)

// configText is a request whose body is the text of a configuration file.
var configText = &rpc.Body[[]byte]{
	Write: func(text []byte) []byte { return text },
	Read: func(from io.Reader) ([]byte, error) {
		text, err := io.ReadAll(from)
		if err != nil {
			return nil, &rpc.Error{Code: rpc.CodeTooLarge, Text: "configuration too large or cut short"}
		}
		return text, nil
	},
}

var serviceForm = &rpc.Form[string]{
	Write: func(service string) url.Values { return url.Values{"name": {service}} },
	Read:  func(v url.Values) (string, error) { return v.Get("name"), nil },
}

var outputForm = &rpc.Form[OutputRequest]{
	Write: func(q OutputRequest) url.Values {
		return url.Values{"name": {q.Service}, "lines": {strconv.Itoa(q.Lines)}}
	},
	Read: func(v url.Values) (OutputRequest, error) {
		q := OutputRequest{Service: v.Get("name"), Lines: defaultLines}
		if text := v.Get("lines"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return q, errors.New("lines is not a number")
			}
			q.Lines = min(n, maxLines)
		}
		return q, nil
	},
}

var logForm = &rpc.Form[LogRequest]{
	Write: func(q LogRequest) url.Values {
		v := url.Values{"name": {q.Service}}
		switch {
		case q.Cursor != "":
			v.Set("cursor", q.Cursor)
		case !q.Since.IsZero():
			v.Set("since", q.Since.Format(time.RFC3339Nano))
		default:
			v.Set("last", strconv.Itoa(q.Last))
		}
		return v
	},
	Read: func(v url.Values) (LogRequest, error) {
		q := LogRequest{Service: v.Get("name"), LogQuery: LogQuery{Cursor: v.Get("cursor")}}
		if text := v.Get("since"); text != "" {
			since, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				return q, errors.New("since is not a time of RFC 3339")
			}
			q.Since = since
		}

		if text := v.Get("last"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return q, errors.New("last is not a number of lines")
			}
			q.Last = min(n, maxLast)
		}
		return q, nil
	},
}

var minionsForm = &rpc.Form[MinionsRequest]{
	Write: func(q MinionsRequest) url.Values {
		if q.Finger {
			return url.Values{"finger": {"1"}}
		}
		return url.Values{}
	},
	Read: func(v url.Values) (MinionsRequest, error) {
		return MinionsRequest{Finger: v.Get("finger") != ""}, nil
	},
}

var explainForm = &rpc.Form[control.ExplainQuestion]{
	Write: func(q control.ExplainQuestion) url.Values {
		v := url.Values{"minion": {q.Minion}, "key": {q.Key}, "user": {q.User}, "fun": {q.Function}}
		if q.Silent {
			v.Set("silent", "1")
		}
		return v
	},
	Read: func(v url.Values) (control.ExplainQuestion, error) {
		return control.ExplainQuestion{
			Minion:   v.Get("minion"),
			Key:      v.Get("key"),
			User:     v.Get("user"),
			Function: v.Get("fun"),
			Silent:   v.Get("silent") != "",
		}, nil
	},
}

var historyForm = &rpc.Form[history.Query]{Write: history.Query.Values, Read: history.ParseQuery}

var auditForm = &rpc.Form[audit.Query]{Write: audit.Query.Values, Read: audit.ParseQuery}
