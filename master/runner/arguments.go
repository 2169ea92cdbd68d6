package runner

import (
	"strings"

	"saltern/master/value"
)

// envelopeFields holds the names at the top of a wheel or runner load that are not arguments: the
// fields with the caller's identity, and CLIENT_INTERNAL_KEYWORDS of salt/client/mixins.py. Inside
// kwarg these names are ordinary arguments.
var envelopeFields = map[string]bool{
	"cmd": true, "fun": true, "arg": true, "kwarg": true, "key": true, "user": true, "token": true, "eauth": true, "username": true,
	"password": true, "client": true, "full_return": true, "print_event": true,
}

// Arguments returns the arguments of a wheel function: those in arg, those in kwarg, and those at
// the top of the load (salt/client/mixins.py low).
func Arguments(load *value.Map) ([]any, *value.Map) {
	named := value.NewMap()
	for k, v := range load.All() {
		if s, ok := k.(string); ok && !envelopeFields[s] && !strings.HasPrefix(s, "__") {
			named.Set(k, v)
		}
	}

	for k, v := range load.Map("kwarg").All() {
		if s, ok := k.(string); ok && !strings.HasPrefix(s, "__") {
			named.Set(k, v)
		}
	}

	args := load.List("arg")
	if n := len(args); n > 0 {
		if kw, ok := args[n-1].(*value.Map); ok && kw.Bool("__kwarg__") {
			args = args[:n-1]
			for k, v := range kw.All() {
				if s, ok := k.(string); ok && !strings.HasPrefix(s, "__") {
					named.Set(k, v)
				}
			}
		}
	}

	return args, named
}

// LowArguments returns the arguments of a runner. Salt's clients put {"arg": [...], "kwarg": {...}}
// into the kwarg of the load (salt/runner.py _reformat_low); other clients put the named arguments
// directly into the kwarg.
func LowArguments(load *value.Map) ([]any, *value.Map) {
	low := load.Map("kwarg")
	_, isList := low.Value("arg").([]any)
	if isList && low.Map("kwarg") != nil {
		return Arguments(value.NewMap("arg", low.Value("arg"), "kwarg", low.Value("kwarg")))
	}
	return Arguments(load)
}
