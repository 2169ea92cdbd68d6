package jobs

import (
	"bytes"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// Fields that the master adds to the load that it keeps of a job, and to the event of its
// start. Whatever a caller says under these names is removed.
const (
	// AccountField names whose part of the job cache a job takes, of a caller without all
	// rights.
	AccountField = "account"
	// ChosenField says that the caller has chosen the id of the job.
	ChosenField = "chosen_jid"
)

// Continues reports whether a load is one more part of the job that is kept: the same
// caller runs the same function with the same arguments under its id, as batches do on
// their next minions (salt/cli/batch.py, salt/utils/batch_manager.py), and syndics below
// several masters. kept may be the load that a return has made.
func Continues(load, kept *value.Map) bool {
	args := "arg"
	if _, fromReturn := kept.Get("return"); fromReturn {
		args = "fun_args"
	}
	account, keptAccount := load.Str(AccountField), kept.Str(AccountField)
	otherAccount := account != "" && keptAccount != "" && account != keptAccount
	return !otherAccount && load.Str("user") == kept.Str("user") &&
		samePacked(load.Value("fun"), kept.Value("fun")) && samePacked(load.Value("arg"), kept.Value(args))
}

// samePacked compares values as they are kept: 1 is not true, and what is no number is
// itself.
func samePacked(a, b any) bool {
	packed, err := msgpack.Marshal(a, msgpack.Modern)
	if err != nil {
		return false
	}
	other, err := msgpack.Marshal(b, msgpack.Modern)
	return err == nil && bytes.Equal(packed, other)
}

// Outranks reports whether a load takes the place of another one that has its job id,
// where the masters of a cluster have started both before they heard of each other. An id
// that a master has made outranks one that a caller has chosen, and of those that of a
// caller with all rights the others: so all masters keep the same one, and nobody hides
// somebody's job by its id. Of equals the one that was known first stays.
func Outranks(load, kept *value.Map) bool { return rank(load) > rank(kept) }

func rank(load *value.Map) int {
	switch {
	case !load.Bool(ChosenField):
		return 2
	case load.Str(AccountField) == "":
		return 1
	}
	return 0
}
