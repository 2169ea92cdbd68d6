package restapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"saltern/master/client"
	"saltern/master/value"
)

// clientNames returns the clients that GET / lists (salt/netapi/__init__.py CLIENTS). destroy is in
// Salt's list by mistake and does nothing in Saltern.
func clientNames() []string {
	return []string{"destroy", "local", "local_async", "local_batch", "local_subset", "runner",
		"runner_async", "ssh", "wheel", "wheel_async"}
}

// call is one command of a request, with its chunk of low data.
type call struct {
	low      *value.Map
	page     bool                  // a page of the console asks
	answered func(proven bool)     // gets the outcome of the master's first answer, see [client.Config]; may be nil
	oldFiles func(client.OldFiles) // gets reports about outdated files
}

// execute runs the commands of a request one after another and returns their results. If form is
// not "", it replaces the client of every command. If token is not "", it is the session's valid
// token and replaces the token of every command. After an error execute runs no further command; it
// does not undo earlier commands.
func (s *Server) execute(ctx context.Context, q *request, low any, form, token string) ([]any, error) {
	chunks, ok := low.([]any)
	if !ok {
		return nil, &failure{http.StatusBadRequest, "Lowstates must be a list"}
	}

	out := []any{}
	for _, c := range chunks {
		chunk, ok := c.(*value.Map)
		if !ok {
			return nil, &failure{http.StatusBadRequest, "A command must be a map, not " + value.StrMax(c, 100) + "."}
		}

		if token != "" {
			chunk.Set("token", token)
		}

		if t, ok := chunk.Get("token"); ok {
			if s, ok := t.(string); !ok || s == "" || strings.Trim(strings.ToLower(s), "0123456789abcdef") != "" {
				return nil, &failure{http.StatusUnauthorized, "Invalid token"}
			}
		}

		if form != "" {
			chunk.Set("client", form)
		}

		if v, ok := chunk.Get("arg"); ok {
			if _, list := v.([]any); !list {
				chunk.Set("arg", []any{v})
			}
		}

		got, err := s.runCommand(ctx, q, chunk, token != "")
		if err != nil {
			return nil, err
		}

		out = append(out, got...)
	}

	return out, nil
}

// runCommand runs one command (salt/netapi/__init__.py NetapiClient.run). proven means that the
// master has just confirmed the token of the command.
func (s *Server) runCommand(ctx context.Context, q *request, low *value.Map, proven bool) ([]any, error) {
	if !s.masterIsUp(ctx) {
		return nil, &failure{http.StatusServiceUnavailable, "Salt Master is not available."}
	}

	name, err := s.allowed(low)
	if err != nil {
		return nil, err
	}

	if token, ok := low.Get("token"); ok && !proven {
		text, _ := token.(string)
		err := s.proveToken(ctx, text, q)
		if f, ok := errors.AsType[*failure](err); ok && f.code == http.StatusUnauthorized {
			return nil, &failure{http.StatusUnauthorized, unknownToken(name)}
		}
		if err != nil {
			return nil, err
		}

		proven = true
	}

	if err := s.takeWorker(ctx, q); err != nil {
		return nil, err
	}
	if proven {
		return s.dispatch(ctx, name, call{low: low, page: q.page, oldFiles: q.noteOldFiles})
	}

	return s.runByPassword(ctx, q, name, low)
}

// unknownToken returns the text with which Salt's master refuses an unknown token; form is the
// client of the command, on which the text depends.
func unknownToken(form string) string {
	if strings.HasPrefix(form, "local") {
		return "Authentication error occurred."
	}
	return `Authentication failure of type "token" occurred.`
}

// runByPassword runs a command that contains a password. Until the master's first answer the
// command is limited as a guess, after that as a command of the user.
func (s *Server) runByPassword(ctx context.Context, q *request, name string, low *value.Map) ([]any, error) {
	user := owner{name: low.Str("username"), system: low.Str("eauth")}
	g, err := s.startGuess(ctx, q, user.system, user.name)
	if err != nil {
		return nil, err
	}

	out, err := s.dispatch(ctx, name, call{low: low, oldFiles: q.noteOldFiles, answered: func(proven bool) {
		g.releaseTurn()
		if proven {
			g.noteRight()
			s.countForOwner(q, user)
		}
	}})

	if e, ok := errors.AsType[*client.Error](err); ok && e.Kind == client.Authentication && g.noteWrong() {
		return nil, s.tooMany(q.from)
	}

	g.noteUnseen()
	return out, err
}

// allowed returns the client of a command. It returns an error if netapi_enable_clients does not
// include that client, or if the command contains no credentials.
func (s *Server) allowed(low *value.Map) (string, error) {
	v, _ := low.Get("client")
	name, _ := v.(string)
	switch {
	case !slices.Contains(clientNames(), name):
		return "", &failure{http.StatusBadRequest, "Invalid client specified: '" + value.StrMax(v, 100) + "'"}
	case !slices.Contains(s.opts.Clients, name):
		return "", &failure{http.StatusBadRequest,
			"Client disabled: '" + name + "'. Add to 'netapi_enable_clients' master config option to enable."}
	}

	_, token := low.Get("token")
	_, system := low.Get("eauth")
	switch {
	case !token && !system:
		return "", &failure{http.StatusUnauthorized, "No authentication credentials given"}
	case value.Truth(low.Value("raw_shell")) && !s.opts.RawShell:
		return "", &failure{http.StatusUnauthorized, "Raw shell option not allowed."}
	}

	return name, nil
}

func (s *Server) dispatch(ctx context.Context, name string, c call) ([]any, error) {
	one := func(v any, err error) ([]any, error) {
		if err != nil {
			return nil, err
		}
		return []any{v}, nil
	}

	switch name {
	case "local":
		return one(s.runLocal(ctx, c))
	case "local_async":
		return one(s.startLocal(ctx, c))
	case "local_subset":
		return one(s.runSubset(ctx, c))
	case "local_batch":
		return s.runBatch(ctx, c)
	case "runner":
		return one(s.callRunner(ctx, c))
	case "runner_async":
		return one(s.startRunner(ctx, c))
	case "wheel":
		return one(s.callWheel(ctx, c))
	case "wheel_async":
		return one(s.startWheel(ctx, c))
	}

	return nil, &failure{http.StatusBadRequest,
		"The client " + name + " is not served by this salt-api; salt-ssh is Python's, and so is the salt-api for it."}
}

// credentials returns the credentials of a command. The caller must have called allowed, which
// checks that the command contains credentials.
func credentials(low *value.Map) *value.Map {
	m := value.NewMap()
	for _, k := range []string{"token", "username", "password", "eauth"} {
		if v, ok := low.Get(k); ok {
			m.Set(k, v)
		}
	}
	return m
}
