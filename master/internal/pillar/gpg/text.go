package gpg

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"saltern/master/value"
)

// Marks of a PGP message in a text.
const (
	begin = "-----BEGIN PGP MESSAGE-----"
	end   = "-----END PGP MESSAGE-----"
)

// nextMessage returns where the first PGP message in a text begins and ends.
func nextMessage(text string) (from, to int, found bool) {
	from = strings.Index(text, begin)
	if from < 0 {
		return 0, 0, false
	}
	length := strings.Index(text[from+len(begin):], end)
	if length < 0 {
		return 0, 0, false
	}
	return from, from + len(begin) + length + len(end), true
}

// Value returns v with all PGP messages in its texts decrypted, at any depth, but not in keys of maps
// (salt/renderers/gpg.py _decrypt_object). It does not change v, and returns v itself if nothing in it
// changes. What becomes valid UTF-8 is a text, as in Salt; anything else is bytes.
//
// Value calls mayRun before it runs gpg or waits for one, and returns the error of mayRun. mayRun may be
// nil. After an error the returned value holds what was decrypted before it.
func (d *Decrypter) Value(ctx context.Context, q *Question, mayRun func() error, v any) (any, error) {
	if err := d.Available(); err != nil {
		return v, err
	}
	if q == nil {
		q = d.Ask()
		defer q.End()
	}

	w := walk{decrypter: d, ctx: ctx, question: q, mayRun: mayRun}
	out, _, err := w.value(v)
	return out, err
}

// walk is one call of Value.
type walk struct {
	decrypter *Decrypter
	ctx       context.Context
	question  *Question
	mayRun    func() error
}

func (w *walk) value(v any) (out any, changed bool, err error) {
	switch v := v.(type) {
	case string:
		return w.text(v)
	case []byte:
		if out, changed, err = w.text(string(v)); err == nil && !changed && utf8.Valid(v) {
			return string(v), true, nil
		}
		if !changed {
			return v, false, err
		}
		return out, true, err
	case *value.Map:
		return w.mapping(v)
	case []any:
		return w.list(v)
	}
	return v, false, nil
}

func (w *walk) mapping(m *value.Map) (any, bool, error) {
	out := m
	for k, x := range m.All() {
		y, changed, err := w.value(x)
		if changed {
			if out == m {
				out = m.Clone()
			}
			out.Set(k, y)
		}
		if err != nil {
			return out, out != m, err
		}
	}
	return out, out != m, nil
}

func (w *walk) list(l []any) (any, bool, error) {
	var out []any
	for i, x := range l {
		y, changed, err := w.value(x)
		if changed {
			if out == nil {
				out = append([]any(nil), l...)
			}
			out[i] = y
		}
		if err != nil {
			if out == nil {
				return l, false, err
			}
			return out, true, err
		}
	}
	if out == nil {
		return l, false, nil
	}
	return out, true, nil
}

// text decrypts all messages of a text. As in Salt, line ends at the end go if there was a message.
func (w *walk) text(text string) (any, bool, error) {
	rest := text
	from, to, found := nextMessage(rest)
	if !found {
		return text, false, nil
	}

	var out strings.Builder
	for found {
		secret, err := w.message(rest[from:to])
		if err != nil {
			return text, false, err
		}
		out.WriteString(rest[:from])
		out.WriteString(secret)
		rest = rest[to:]
		from, to, found = nextMessage(rest)
	}

	out.WriteString(rest)
	opened := strings.TrimRight(out.String(), "\n")
	if !utf8.ValidString(opened) {
		return []byte(opened), true, nil
	}
	return opened, true, nil
}

// message returns what one message says, or the message itself if it cannot be decrypted and need
// not be.
func (w *walk) message(message string) (string, error) {
	if utf8.ValidString(message) {
		message = strings.ReplaceAll(message, `\n`, "\n")
	}

	secret, err := w.decrypter.decrypt(w.ctx, w.question, w.mayRun, message)
	if _, failed := errors.AsType[*Failure](err); failed && !w.decrypter.cfg.MustSucceed {
		return message, nil
	}
	if err != nil {
		return "", err
	}

	w.question.opened += len(secret)
	if w.question.opened > maxOpened {
		return "", fmt.Errorf("the secrets of one pillar have more than %d MiB", maxOpened>>20)
	}
	return secret, nil
}
