package setup

import (
	"fmt"

	"github.com/spf13/cobra"

	"exportbridge/bridge/ops/door"
	"exportbridge/cmd/internal/cli"
)

func newTokenCommand(a *cli.App) *cobra.Command {
	who := door.Identity{Role: door.Read}
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Create a token for the HTTP API",
		Long: `Create a random token for the HTTP API and the operations page. The token is
printed on standard error, once: give it to its owner. Its line for
HTTP_TOKENS_FILE, with a hash in place of the token, is printed on standard
output. The process reads the file again at each request: append a line to
grant access, remove it to withdraw access. The history records the name.`,
		Example: "  (umask 077; " + a.Name + " token alice --role act >>tokens)",
		GroupID: cli.GroupSetup,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.WrongUsage(a.Name+" token alice", "a name is missing")
			}
			return cli.NoArgs(cmd, args[1:])
		},
	}
	cmd.Flags().StringVar((*string)(&who.Role), "role", string(who.Role), "`ROLE` of its owner: read or act")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		who.Name = args[0]
		token, line, err := door.New(who)
		if err != nil {
			return cli.Errorf(cli.ExitUsage, a.Name+" token alice --role act", "%w", err)
		}
		fmt.Fprintln(a.Stderr, "token of "+who.Name+", not stored anywhere:", token)
		_, err = fmt.Fprintln(a.Stdout, line)
		return err
	}
	return cmd
}
