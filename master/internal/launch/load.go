package launch

import "saltern/master/value"

// MaxFunctions bounds the number of functions in a compound job.
const MaxFunctions = 1000

// Functions returns the functions in the field fun of a load: one function, or the list of a
// compound job. ok is false if fun is neither of the two, or if the list is too long.
func Functions(load *value.Map) (funs []string, ok bool) {
	switch f := load.Value("fun").(type) {
	case string:
		return []string{f}, true
	case []any:
		if len(f) > MaxFunctions {
			return nil, false
		}

		for _, v := range f {
			s, ok := v.(string)
			if !ok {
				return nil, false
			}
			funs = append(funs, s)
		}

		return funs, len(funs) > 0
	}

	return nil, false
}

// arguments returns a list with the arguments of each of the n functions.
func arguments(load *value.Map, n int) []any {
	arg := load.List("arg")
	if _, one := load.Value("fun").(string); one {
		return []any{arg}
	}
	return arg[:min(len(arg), n)]
}

// TargetType returns the type of a load's target.
func TargetType(load *value.Map) string {
	if t := load.Str("tgt_type"); t != "" {
		return t
	}
	return "glob"
}

// Delimiter returns the delimiter between the parts of a load's target.
func Delimiter(load *value.Map) string {
	if d := load.Map("kwargs").Str("delimiter"); d != "" {
		return d
	}
	return ":"
}
