// Package cli speaks to glusterd through the gluster command: it runs the
// command with a deadline, reads the XML of its answers with a bounded parser,
// and sorts refusals into those that mean "already done", "try again" and "no".
//
// Three facts about gluster 10 shape it. The exit status says nothing when
// --xml is given (a refusal has opRet -1 and exit 0). Some answers are plain
// text in spite of --xml. And nearly every refusal has the same number
// (30800), so that its text must be read, and the only safe reaction to a
// text that is not known is to look at the state again.
//
// [Client] has a method for each command; [command.Runner] is what it runs them
// with: [command.Exec] outside of tests.
package cli
