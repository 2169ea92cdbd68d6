package wheel

import (
	"context"
	"errors"
	"fmt"

	"saltern/master/pyrunner"
	"saltern/master/value"
)

// Service calls the wheel functions of a master, and those that only Python has:
// an administrator's own.
type Service struct {
	Env    *Env
	Python *pyrunner.Caller
	// Wait takes a place among the requests that wait for the work of others;
	// leave gives it back.
	Wait func() (leave func(), ok bool)
}

// call calls a wheel function.
func (s *Service) Call(ctx context.Context, fun string, args []any, named *value.Map) (any, error) {
	ret, err := call(ctx, s.Env, fun, args, named)
	if !errors.Is(err, errUnknown) {
		return ret, err
	}
	leave, ok := s.Wait()
	if !ok {
		return nil, errors.New("the master is busy with the requests of others; try again later")
	}
	defer leave()
	ret, perr := s.Python.Call(ctx, fun, args, named)
	var none *pyrunner.UnknownError
	switch {
	case errors.As(perr, &none):
		return nil, err
	case errors.Is(perr, pyrunner.ErrNoSalt):
		return nil, fmt.Errorf("%w in this master itself, and %w; set saltern_renderer_python", err, perr)
	}
	return ret, perr
}
