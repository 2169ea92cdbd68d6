package wheel

import (
	"context"
	"fmt"
)

// applianceFunctions returns the wheel functions that the supervisor executes. Salt does not have
// them.
func applianceFunctions() map[string]function {
	drain := func(end bool) func(context.Context, *Env, args) (any, error) {
		return func(ctx context.Context, e *Env, a args) (any, error) {
			node, err := a.oneWord("node")
			if err != nil {
				return nil, err
			}
			return true, e.Machines.Drain(ctx, node, end)
		}
	}

	return map[string]function{
		"appliance.drain":   {[]string{"node"}, 1, drain(false)},
		"appliance.undrain": {[]string{"node"}, 1, drain(true)},
		"appliance.restart": {[]string{"node", "service"}, 2, func(ctx context.Context, e *Env, a args) (any, error) {
			node, err := a.oneWord("node")
			if err != nil {
				return nil, err
			}

			service, err := a.oneWord("service")
			if err != nil {
				return nil, err
			}

			return true, e.Machines.Restart(ctx, node, service)
		}},
	}
}

// maxWord bounds the length of the name of a node or a service.
const maxWord = 64

// oneWord returns the argument with this name, which must be a name of printable ASCII characters
// without spaces.
func (a args) oneWord(name string) (string, error) {
	s := a.textOf(name, "")
	if s == "" || len(s) > maxWord {
		return "", fmt.Errorf("%s is a name of 1 to %d characters", name, maxWord)
	}
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return "", fmt.Errorf("%s is a name without spaces and control characters", name)
		}
	}
	return s, nil
}
