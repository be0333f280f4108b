/*
 * The commit protocol of exportbridge as a model: cursor API -> Kafka
 * transaction -> Redis. A checker walks through every order in which the
 * steps below can happen, and through every fault between them.
 *
 *   MODEL=1 go test -run TestModel -v ./bridge/engine  all runs of the table below
 *
 * One run by hand, in a folder of its own, since spin and pan leave files:
 *   spin -a -DNPOS=2 -DNRESET=1 -DNO_OWNER exactly_once.pml
 *   gcc -O2 -DSAFETY -DNOCLAIM -DCOLLAPSE -DMEMLIM=4000 -o pan pan.c
 *   ./pan -m1000000 -w24
 * and for "done" (liveness):
 *   spin -a -DNPOS=1 -DNRESET=1 -DLIVE=1 -DOFFLINE -DNO_REDIS_FAIL exactly_once.pml
 *   gcc -O2 -DNFAIR=5 -DCOLLAPSE -DMEMLIM=4000 -o pan pan.c
 *   ./pan -a -f -m3000000 -w24
 * Other runs use the -D options of the lists below. After an error, "spin -t -p -g"
 * with the same options and the file prints the steps that led to it.
 * Runs that are larger than those of TestModel, and have no error:
 *   -DNPOS=2 -DNRESET=1                              11 million states
 *   -DNPOS=1 -DNRESET=1 -DNO_OWNER -DOFFLINE          9 million
 *   -DNPOS=0 -DNRESET=2 -DNO_OWNER -DOFFLINE         21 million
 *   -DNPOS=2 -DNRESET=0 -DSWITCH=2                   29 million
 *
 * What is modelled
 *   - an immutable source of NPOS items; "position" stands for (seq, cursor,
 *     tail), which grow together within an epoch;
 *   - Kafka: one transactional.id, one open transaction, fencing by "last
 *     InitProducerID wins", the broker's transaction time-out, EndTxn whose
 *     request or reply is lost, EndTxn that arrives late, a record that the
 *     broker refuses, a foreign transaction that holds back the last stable
 *     offset; Kafka loses nothing that it committed;
 *   - the group coordinator, which may give the stream away at any moment and
 *     tell the old owner late or never;
 *   - Redis: the mirror, written at any later time by any process that ever knew
 *     a checkpoint; one request; an asynchronous replica; fail-over to the
 *     replica (roll-back) and FLUSHALL at any moment;
 *   - two processes, each of which can crash at every step; a pause is an
 *     arbitrarily long gap between two steps, so SIGSTOP needs no code;
 *   - an operator who requests NRESET resets, and with -DOFFLINE a command
 *     that applies a reset itself when the stream's group is empty.
 *
 * Which function carries which step (file in bridge, functions, step)
 *   engine/own.go            acquire, serve, confirm    group: ownership, asked again after init_producer
 *   kafkagroup/member.go     wait, onRevoked, onLost    group: given, taken away
 *   kafkasink/producer.go    take                       init_producer
 *   kafkasink/recover.go     commitBarrier              the barrier
 *   kafkasink/newest.go      await, newest              read_kafka
 *   engine/recover.go        recover, loadStored        a session's start; what Redis holds
 *   engine/merge.go          mergeExactly, mergeAtLeast the choice between the two
 *   engine/merge.go          beginEpoch                 a new epoch where the mode changes
 *   engine/commit.go         commit                     one step of the loop
 *   engine/stream.go         publish, commitCheckpoint  its transaction, with pages and without
 *   kafkasink/transaction.go transact                   records, checkpoint
 *   kafkasink/producer.go    end                        END_TXN
 *   kafkasink/delivery.go    await, settle              a record that is refused
 *   engine/commit.go         heartbeat                  the heartbeat
 *   engine/topic.go          recordRules, recordTopics  as the heartbeat, with other routes, rules or topics
 *   engine/stream.go         adopt                      adopt
 *   engine/mirror.go         offer, write, settle       mirror, with cursorstore/advance.lua
 *   engine/command.go        applyCommand, derive       requests, with cursorstore/inbox.lua
 *   engine/command.go        validateCommand            requests that are refused
 *   command.go               Reset, Pause               requests to move, pause and resume
 *   engine/command.go        claim, expire              DEADLINE: claims, and who answers expired
 *   engine/invalidcursor.go  recoverInvalidCursor       a new epoch without a request, as beginEpoch
 *   engine/follow.go         handleError, step          unknown: discard the session
 *   engine/apply.go          Apply                      Command
 *   kafkagroup/group.go      Members                    Command: no process runs the stream
 *   engine/stream.go         advance                    at-least-once mode: compare and set in Redis
 *   kafkasink/copier.go      offer, copy                at-least-once mode: keep
 *
 * Not modelled: the inside of a page (the tail set has property tests), other
 * streams except as holders of the last stable offset, lost Kafka data,
 * deleted topics, several topics: a transaction is atomic over all of them, so that
 * "in the topic" means in the one of the event's route, and a change of routes
 * commits the same position again, as the heartbeat does; more than two
 * processes, producer epochs that roll over, requests that are refused because of a bridge's settings: when Redis falls
 * back they are like withdrawn ones (WITHDRAW).
 *
 * Assertions
 *   NOLOSS   a committed record never skips a position of its epoch, and a
 *            checkpoint is never ahead of its records
 *   NODUP    a committed record never repeats a position of its epoch
 *   ORDER    checkpoints rise in Kafka's log: the audit may rely on it
 *   MIRROR   a checkpoint in Redis is committed in Kafka (R <= K), so that R > K
 *            at a start proves lost data
 *   CLAIM    past its deadline a request is applied only by the session whose
 *            claim stood then; a request that was answered "expired" is never
 *            applied, and an applied one is never answered so
 *   RESET    an acknowledged reset is in force for the owner, is applied at
 *            most once, and only a request that is out of date is refused
 *   SWITCH   a session that begins is never behind the events that an earlier
 *            session has delivered in exactly-once mode
 *
 * Variants. Each takes one rule away and must be found: they are the test of
 * this model. TestModel reads this list.
 *   ORIG_RESET      a reset is a fact in Redis, not a request
 *   ASSUME_ABORT    unknown EndTxn outcome: heal the client, go on from memory
 *   READ_FIRST      the checkpoint is read before InitProducerID
 *   LSO_STALE       no barrier: the reader stops at the last stable offset
 *   NO_BASE         a request carries no base epoch
 *   LAST_RID        as NO_BASE, but the last applied request id is remembered
 *   SAME_EPOCH      a request (a pause, say) is applied without a new epoch
 *   NO_PROOF        an owner refuses a request of a later epoch without recovering
 *   TV1             transaction.version < 2: a late EndTxn may end a later
 *                   transaction
 *   CKPT_FIRST      with TV1: the checkpoint is produced before the records
 *   IGNORE_PROMISE  the transaction is committed though a record failed
 *   SAVE_BEFORE_COMMIT  the checkpoint is committed before the records
 *   REDIS_WINS      on start Redis is believed whenever it has a checkpoint
 *   REDIS_LATE      Redis is read after Kafka, and believed to be ahead
 *   MIRROR_FIRST    Redis is written before the commit is answered
 *   NO_OWNER        (liveness) no ownership: two sessions fence each other
 *   NO_HEARTBEAT    (liveness) an idle owner never asks whether it is fenced
 *   OFFLINE_FIGHT   (liveness) a command that was fenced tries again without
 *                   checking the group again
 *   CLAIM_OUTLIVES  with DEADLINE: the next session takes over a claimed request
 *                   at any time
 *   EXPIRE_LIVE     with DEADLINE: an owner answers "expired" without having
 *                   fenced the claimer
 *   OFFLINE_REBASE  a command that tries again takes the epoch it finds then
 *   WITHDRAW        a request is withdrawn, and then Redis falls back: no rule
 *                   of ours prevents it, the deadline bounds it
 *   NO_MINT         another delivery mode goes on in the epoch it finds
 *   MINT_REDIS_ONLY at least once publishes in an epoch that only Redis knows
 *   MINT_REDIS_FIRST  at least once tells Redis of a new epoch before Kafka
 *   SAVE_FIRST      at least once saves the checkpoint before the acks
 *
 * Configurations, to be combined with a variant
 *   NPOS, NRESET    size; TARGETS2: a rewind may go to 0 or 1
 *   NO_OWNER        also for safety, which must not depend on ownership, and
 *                   which it makes cheaper to check: more can happen without
 *   NO_REDIS_FAIL   Redis never loses or rolls back anything
 *   DEADLINE        requests have a deadline, and sessions claim them
 *   OFFLINE         the command of edge rule 8 is there
 *   LIVE=n          "done" with n faults in all and weak fairness
 *   PLAIN           at-least-once instead: no transactions, Redis after the acks
 *   SWITCH=n        exactly once, and the configured mode changes n times
 *                   (with PLAIN: at least once first)
 */
#ifndef NPOS
#define NPOS 3
#endif
#ifndef NRESET
#define NRESET 2
#endif
#define MAXE (NRESET+2)           /* one epoch to spare, so that a reset applied twice shows */
#define NONE 9
#define FREE 9
#ifdef LIVE
byte faults = LIVE;
#define FAULT atomic { (faults > 0) -> faults = faults - 1 }
ltl done { <>[] (kP == NPOS) }
#else
#define FAULT true
#endif
#if defined(PLAIN) || defined(SWITCH)
#define SESSIONS                  /* the second half of this file */
#endif

/* ---- Kafka ---- */
byte kE = 0, kP = 0, kR = 0;      /* committed checkpoint: epoch, position, request id */
#ifdef LSO_STALE
byte oE = 0, oP = 0, oR = 0;      /* the one before it (what a reader without barrier may see) */
#endif
byte kOwner = NONE;               /* whose producer session is valid */

#ifndef SESSIONS
bool txOpen = false, txCk = false;
byte txE, txFrom, txTo;           /* records of the open transaction */
byte ckE, ckP, ckR;               /* its checkpoint record */
byte delayedBy = NONE;            /* a delayed EndTxn(commit) is still on the wire */

/* ---- the group coordinator ---- */
#ifndef NO_OWNER
byte group = FREE;                /* who is assigned the stream's partition */
#endif

/* ---- Redis and its replica ----
 * Exactly once, Redis only feeds the operator's base epoch: the position kept
 * there cannot influence anything, so it is left out unless a variant reads it. */
#if defined(ORIG_RESET) || defined(REDIS_WINS)
#define RFULL
#endif
bool rHas = false;  byte rE = 0;
byte qId = 0, qBase = 0, qTarget = 0;             /* request; id 0 = none */
bool sHas = false;  byte sE = 0;
byte sqId = 0, sqBase = 0, sqTarget = 0;
#ifdef RFULL
byte rP = 0, rR = 0, sP = 0, sR = 0;
#endif
#ifdef WITHDRAW
bool qClaimed = false, sqClaimed = false;         /* a claimed request cannot be withdrawn */
byte withdrawn = 0;
#endif
#ifdef DEADLINE
#define DECIDES (nE == NONE || qClaim == mine) /* a refusal counts while its claim stands */
#define CLAIMS 4                  /* sessions that may claim something */
byte claims = 0, qClaim = 0;      /* each claim is a session's; qClaim is the one that stands, 0 = none */
bool qLate = false;               /* the deadline has passed */
byte lateId = 0, standing = 0;    /* of which request, and whose claim stood then */
byte ckClaim = 0;                 /* whose claim the open transaction's checkpoint comes from */
byte expired = 0;                 /* last request that was answered so */
#else
#define DECIDES true
#endif
byte aE = 0;                      /* greatest epoch that a process has adopted: any mirror may write up to it */

/* ---- bookkeeping for the assertions ---- */
byte expect[MAXE];                /* next position owed in each epoch */
byte applied[NRESET+1];           /* how often a request was applied */
byte acked = 0;                   /* last request acknowledged to the operator */
byte asked = 0;

inline clear_tx() {
  txOpen = false; txCk = false; txE = 0; txFrom = 0; txTo = 0; ckE = 0; ckP = 0; ckR = 0
}

inline commit_tx() {
  if
  :: (txTo > txFrom) ->                                /* records [txFrom,txTo) become visible */
       assert(txFrom <= expect[txE]);                  /* NOLOSS */
       assert(txFrom >= expect[txE]);                  /* NODUP */
       if :: (txTo > expect[txE]) -> expect[txE] = txTo :: else -> skip fi
  :: else -> skip
  fi;
  if
  :: txCk ->
       if
       :: (ckE != kE || ckR != kR) ->                   /* a request takes effect */
            applied[ckR] = applied[ckR] + 1;
            assert(applied[ckR] == 1);                 /* RESET: at most once */
#ifdef WITHDRAW
            assert(ckR != withdrawn);                  /* RESET: what was withdrawn never happens */
#endif
#ifdef DEADLINE
            assert(ckR != expired);                    /* CLAIM: what was answered expired never happens */
            assert(ckR != lateId || ckClaim == standing); /* CLAIM: past the deadline only its claimer applies it */
#endif
            expect[ckE] = ckP
       :: else ->
            assert(ckP <= expect[ckE])                 /* NOLOSS: checkpoint never ahead of records */
       fi;
#ifndef SAME_EPOCH
       assert(ckE > kE || (ckE == kE && ckP > kP));    /* ORDER */
#endif
#ifdef LSO_STALE
       oE = kE; oP = kP; oR = kR;
#endif
       kE = ckE; kP = ckP; kR = ckR
  :: else -> skip
  fi;
  clear_tx()
}

#ifdef DEADLINE
inline forget_request() { qId = 0; qBase = 0; qTarget = 0; qClaim = 0; qLate = false }
#endif

inline init_producer() {          /* fences everyone else, settles the dangling transaction */
  clear_tx(); kOwner = me; delayedBy = NONE
}

inline adopt() {                  /* from here on the mirror may have it */
  assert(cE < kE || (cE == kE && cP <= kP));           /* MIRROR: R <= K */
  if :: (cE > aE) -> aE = cE :: else -> skip fi
}

/* EndTxn(commit) of a complete transaction */
#define END_TXN \
  if :: d_step { commit_tx() } LATE_COPY               /* committed, the reply arrives */ \
     :: FAULT -> d_step { commit_tx() } goto unknown   /* committed, the reply is lost */ \
     :: FAULT -> goto unknown                          /* the request is lost */ \
     :: FAULT -> delayedBy = me; goto unknown          /* the request is late */ \
  fi
#ifdef TV1
#define LATE_COPY ; if :: delayedBy = me :: skip fi    /* an earlier copy is still on the wire */
#else
#define LATE_COPY
#endif

inline read_kafka() {
#ifdef LSO_STALE
  if :: cE = kE; cP = kP; cR = kR
     :: cE = oE; cP = oP; cR = oR                      /* behind a foreign open transaction */
  fi
#else
  cE = kE; cP = kP; cR = kR
#endif
}

inline merge_redis() {
#ifdef REDIS_WINS
  if :: rHas -> cE = rE; cP = rP; cR = rR :: else -> skip fi
#endif
#ifdef ORIG_RESET
  if :: rHas && (rE > cE || (rE == cE && rP > cP)) -> cE = rE; cP = rP; cR = rR
     :: else -> skip
  fi
#endif
  skip
}

#ifdef RFULL
inline mirror() {                 /* compare and set: only forward in (epoch, position) */
  if :: (!rHas || cE > rE || (cE == rE && cP > rP)) -> rHas = true; rE = cE; rP = cP; rR = cR
     :: else -> skip
  fi
}
#endif

proctype Bridge(byte me) {
  byte cE = 0, cP = 0, cR = 0, to = 0, nE = 0, nP = 0, nR = 0, lE = 0;
#ifdef DEADLINE
  byte mine = 0, over = 0;        /* the session's claim; the one that was seen before the session began */
#endif

restart:
#ifdef DEADLINE
  mine = 0;
#endif
  cE = 0; cP = 0; cR = 0; to = 0; nE = 0; nP = 0; nR = 0; lE = 0;
#ifndef NO_OWNER
  atomic { (group == FREE || group == me) -> group = me }      /* the same process comes back with its id */
#endif
#ifdef READ_FIRST
  atomic { read_kafka() }
  d_step { init_producer() }
#else
  d_step { init_producer();
#ifndef REDIS_LATE
    if :: rHas -> lE = rE :: else -> skip fi                   /* Redis before Kafka: then R <= K must hold */
#endif
  }
#ifndef NO_OWNER
  if :: (group != me) -> goto restart :: else -> skip fi;      /* owned: safety must not depend on it */
#endif
#ifdef LSO_STALE
  atomic { read_kafka() }
#else
  atomic {                                                     /* the barrier shows what was committed before it */
    if :: (kOwner != me) -> goto restart
       :: FAULT -> goto restart
       :: (kOwner == me) -> read_kafka()
    fi;
#ifdef TV1
    if :: delayedBy = me :: skip fi
#endif
    skip
  }
#endif
#endif
#ifdef REDIS_LATE
  if :: rHas -> lE = rE :: else -> skip fi;
#endif
#if !defined(ORIG_RESET) && !defined(REDIS_WINS) && !defined(READ_FIRST) && !defined(LSO_STALE)
  assert(lE <= cE);                                            /* MIRROR: R > K would be lost data */
#endif
  d_step { lE = 0; merge_redis();
#if !defined(ORIG_RESET) && !defined(REDIS_WINS)
    adopt()
#endif
  }

loop:
  do
  :: FAULT -> goto restart                                     /* crash, anywhere in the loop */
#ifdef RFULL
  :: d_step { mirror() }                                       /* asynchronous: at any later time */
#endif
#if !defined(NO_OWNER) && !defined(LIVE)
  :: (group != me) -> goto restart                             /* Lost, if it is noticed */
#endif

  /* ---- control plane: look for a request ----
     (the leading "true" keeps the inner else from being merged into the do) */
  :: atomic { true;
#if !defined(NO_OWNER) && defined(LIVE)
       if :: (group != me) -> goto restart :: else -> skip fi;
#endif
#ifdef ORIG_RESET
       if :: rHas && rE > cE -> cE = rE; cP = rP; cR = rR      /* reset seen */
          :: else -> skip
       fi;
       if :: (kOwner == me) -> assert(cR >= acked) :: else -> skip fi
#else
       if
       :: (qId != 0) ->
#ifdef WITHDRAW
            qClaimed = true;
#endif
            nR = qId; nP = qTarget; nE = cE + 1;
#ifdef SAME_EPOCH
            nE = cE; nP = cP;                                  /* a pause: the position stays */
#endif
#if !defined(NO_BASE) && !defined(LAST_RID)
#ifndef NO_PROOF
            if :: (qBase > cE) -> goto restart :: else -> skip fi;   /* whoever asked knows more: look first */
#endif
            if :: (qBase != cE) -> nE = 0 :: else -> skip fi;  /* out of date */
            if :: (qId == cR) -> nE = NONE :: else -> skip fi  /* done before, the answer was lost */
#endif
#ifdef DEADLINE
            if
            :: (nE == NONE || qClaim != 0 && qClaim == mine) -> skip
#ifndef EXPIRE_LIVE
            :: (nE != NONE && qClaim != 0 && qClaim != mine && qClaim != over) ->
                 over = qClaim; goto restart                   /* a session of ours fences the claimer */
#endif
#ifdef CLAIM_OUTLIVES
            :: (nE != NONE && qClaim != mine && claims < CLAIMS && (qClaim != 0 || !qLate)) ->
                 claims = claims + 1; mine = claims; qClaim = mine
#endif
            :: else ->
                 if
                 :: qLate -> assert(applied[qId] == 0);        /* CLAIM: what was applied is not answered expired */
                      expired = qId; forget_request(); nR = 0; nE = 0; nP = 0
                 :: (!qLate && claims < CLAIMS) ->
                      claims = claims + 1; mine = claims; qClaim = mine; over = 0
                 :: else -> nR = 0; nE = 0; nP = 0
                 fi
            fi
#endif
#ifdef LAST_RID
            if :: (qId == cR) -> nE = NONE :: else -> skip fi
#endif
       :: else -> skip
       fi;
       if :: (kOwner == me) -> assert(cR >= acked) :: else -> skip fi
#endif
     }
     if
#ifdef SAME_EPOCH
     :: (nR != 0 && nE == cE && qBase == cE) -> goto doreset
     :: else ->
#else
     :: (nR != 0 && nE != 0 && nE < MAXE) -> goto doreset
     :: else ->
#endif
          d_step {
            if :: (nR != 0 && qId == nR && DECIDES) ->
#if !defined(NO_BASE) && !defined(LAST_RID) && !defined(SAME_EPOCH)
                    assert(nE == NONE || qBase != kE || kR == nR);   /* RESET: only what is out of date is refused */
#endif
#ifdef DEADLINE
                    forget_request()
#else
                    qId = 0; qBase = 0; qTarget = 0
#endif
               :: else -> skip
            fi;
            nE = 0; nP = 0; nR = 0
          }
     fi

  /* ---- data plane: one transaction of one or two pages ---- */
#ifdef LIVE
     if                                                        /* liveness: poll, then work, in turn */
#endif
  :: (cP < NPOS) ->
       if :: to = cP + 1
          :: (cP + 2 <= NPOS) -> to = cP + 2
       fi;
#ifdef SAVE_BEFORE_COMMIT
       atomic { if :: (kOwner != me) -> goto restart
                   :: else -> txOpen = true; txCk = true; ckE = cE; ckP = to; ckR = cR fi }
       atomic { if :: (kOwner != me) -> goto restart :: else -> END_TXN fi }
#endif
#ifdef CKPT_FIRST
       atomic { if :: (kOwner != me) -> goto restart
                   :: else -> txOpen = true; txCk = true; ckE = cE; ckP = to; ckR = cR fi }
#endif
       atomic { if :: (kOwner != me) -> goto restart
                   :: else -> txOpen = true; txE = cE; txFrom = cP; txTo = to fi }
       if :: skip
          :: FAULT ->                                          /* a record is refused */
#ifdef IGNORE_PROMISE
             d_step { if :: (kOwner == me) -> txTo = txFrom :: else -> skip fi }
#else
             goto restart
#endif
       fi;
#if !defined(CKPT_FIRST) && !defined(SAVE_BEFORE_COMMIT)
       atomic { if :: (kOwner != me) -> goto restart
                   :: else -> txOpen = true; txCk = true; ckE = cE; ckP = to; ckR = cR fi }
#endif
       atomic { if :: (kOwner != me) -> goto restart :: else -> END_TXN fi }
       cP = to; to = 0;
#ifndef ORIG_RESET
       d_step { adopt() }
#endif
#ifdef LIVE
     :: else ->                                                /* idle at the tail */
#ifdef NO_HEARTBEAT
          skip
#else
          atomic { if :: (kOwner != me) -> goto restart        /* heartbeat transaction: am I fenced? */
                      :: else -> skip fi }
#endif
     fi
#endif
  od;

doreset:
  skip;
#ifdef DEADLINE
  atomic { if :: (kOwner != me) -> goto restart :: else -> ckClaim = mine fi }
#endif
#ifdef MIRROR_FIRST
  d_step { if :: (nE > aE) -> aE = nE :: else -> skip fi };
#endif
  atomic { if :: (kOwner != me) -> goto restart
              :: else -> txOpen = true; txCk = true; ckE = nE; ckP = nP; ckR = nR fi }
  atomic { if :: (kOwner != me) -> goto restart :: else -> END_TXN fi }
  /* committed and known: now, and only now, the operator is told */
  atomic { cE = nE; cP = nP; cR = nR; if :: (cR > acked) -> acked = cR :: else -> skip fi;
           nE = 0; nP = 0; nR = 0 }
#ifdef DEADLINE
  d_step { adopt(); if :: (qId == cR) -> forget_request() :: else -> skip fi }
#else
  d_step { adopt(); if :: (qId == cR) -> qId = 0; qBase = 0; qTarget = 0 :: else -> skip fi }
#endif
  goto loop;

unknown:
#ifdef ASSUME_ABORT
  to = 0; nE = 0; nP = 0; nR = 0;
  d_step { init_producer() }                                   /* "healed", memory kept */
  goto loop;
#else
  goto restart;                                                /* new session, read again */
#endif
}

#ifdef OFFLINE
/* The command of edge rule 8: it takes a stream that nobody runs, by fencing.
 * Between its look at the group and its commit anything may happen. */
proctype Command(byte me) {
  byte cE = 0, cP = 0, cR = 0, id = 0, base = 0;
#ifdef OFFLINE_FIGHT
  if :: (group == FREE) -> skip :: else -> goto over fi;
#endif
again:
#if !defined(NO_OWNER) && !defined(OFFLINE_FIGHT)
  if :: (group == FREE) -> skip :: else -> goto over fi;       /* somebody runs it: a request then, no fencing */
#else
  skip;
#endif
  d_step { init_producer() }
  atomic {
    if :: (kOwner != me) -> goto unknown
       :: (kOwner == me) -> cE = kE; cP = kP; cR = kR
    fi;
    if
    :: (id == 0 && asked < NRESET) -> asked = asked + 1; id = asked; base = cE
    :: (id == 0 && asked >= NRESET) -> goto over
    :: (id != 0 && cR == id) -> goto told                      /* committed before, in doubt until now */
#ifdef OFFLINE_REBASE
    :: (id != 0 && cR != id) -> skip
#else
    :: (id != 0 && cR != id && cE == base) -> skip
    :: (id != 0 && cR != id && cE != base) -> goto over        /* moved meanwhile: it cannot say by whom */
#endif
    fi
  }
  if :: (cE + 1 < MAXE) -> skip :: else -> goto over fi;
  atomic { if :: (kOwner != me) -> goto unknown
              :: else -> txOpen = true; txCk = true; ckE = cE + 1; ckP = 0; ckR = id fi }
  atomic { if :: (kOwner != me) -> goto unknown :: else -> END_TXN fi }
told:
  atomic { if :: (id > acked) -> acked = id :: else -> skip fi }
  goto over;
unknown:
  if :: goto again :: goto over fi;                            /* tries again, gives up, or is killed */
over:
  skip
}
#endif

proctype World() {
  byte e = 0;
  do
#ifndef NO_OWNER
  :: atomic { (group != FREE) -> FAULT -> group = FREE }        /* session time-out, or a rebalance */
#endif
  :: atomic { txOpen -> FAULT -> d_step { clear_tx(); kOwner = NONE } } /* broker: transaction time-out */
  :: atomic { (delayedBy != NONE) ->                            /* late EndTxn arrives */
       if :: (txOpen && kOwner == delayedBy) -> d_step { commit_tx() }
          :: else -> skip
       fi; delayedBy = NONE }
#ifndef RFULL
  :: atomic { (!rHas || rE < aE) ->                             /* a mirror writes, of whatever session, */
       if :: rHas -> e = rE + 1 :: else -> e = 0 fi;            /* what it knows, as late as it likes */
       do :: (e < aE) -> e = e + 1 :: break od;
       rHas = true; rE = e; e = 0;
       assert(rE <= kE) }                                       /* MIRROR */
#endif
#ifndef NO_REDIS_FAIL
  :: atomic { FAULT -> d_step { sHas = rHas; sE = rE; sqId = qId; sqBase = qBase; sqTarget = qTarget;
#ifdef RFULL
              sP = rP; sR = rR;
#endif
#ifdef WITHDRAW
              sqClaimed = qClaimed;
#endif
              skip } }                                          /* the replica catches up */
  :: atomic { FAULT -> d_step { rHas = sHas; rE = sE; qId = sqId; qBase = sqBase; qTarget = sqTarget;
#ifdef RFULL
              rP = sP; rR = sR;
#endif
#ifdef WITHDRAW
              qClaimed = sqClaimed;
#endif
              skip } }                                          /* fail-over to the replica */
  :: atomic { FAULT -> d_step { rHas = false; rE = 0; qId = 0; qBase = 0; qTarget = 0;
#ifdef RFULL
              rP = 0; rR = 0;
#endif
#ifdef WITHDRAW
              qClaimed = false;
#endif
              skip } }                                          /* FLUSHALL / data lost */
#endif
  od
}

proctype Operator() {
  byte x = 0;
  do
#ifdef DEADLINE
  :: atomic { (qId != 0 && !qLate) -> qLate = true; lateId = qId; standing = qClaim }
  :: atomic { (asked < NRESET && rHas && qId == 0) ->           /* one at a time */
#else
  :: atomic { (asked < NRESET && rHas) ->
#endif
#ifdef TARGETS2
       if :: x = 0 :: x = 1 fi;                                 /* where to rewind to */
#endif
       asked = asked + 1;
#ifdef ORIG_RESET
       if :: (rE + 1 < MAXE) ->
               rE = rE + 1; rP = x; rR = asked; expect[rE] = x; acked = asked
          :: else -> skip
       fi;
#else
       qId = asked; qBase = rE; qTarget = x;                    /* a request, not a fact */
#ifdef WITHDRAW
       qClaimed = false;
#endif
#endif
       x = 0 }
#ifdef WITHDRAW
  :: atomic { (qId != 0 && !qClaimed) -> withdrawn = qId; qId = 0; qBase = 0; qTarget = 0 }
#endif
#ifndef DEADLINE
  :: (asked >= NRESET) -> break
#endif
  od
}

init { atomic { run Bridge(0); run Bridge(1); run World();
#ifdef OFFLINE
  run Command(2);
#endif
#if !defined(OFFLINE) || !defined(LIVE)
  run Operator();
#endif
  skip } }

#else
/* ===== At least once, and the switch between the two deliveries =====
 * A session reads the configured mode when it begins and keeps it: a process
 * that was configured before the switch goes on as it was, as long as it
 * likes: its records and what it writes to Redis are not fenced, only its
 * mirror in Kafka is. Here seq and position are kept apart, since a heartbeat
 * or a larger transaction moves one and not the other. */
#ifndef SWITCH
#define SWITCH 0
#endif
#define EPOCHS (SWITCH+NRESET+2)
#define AT_LEAST 0
#define EXACTLY 1
#ifdef PLAIN
bit want = AT_LEAST;
#else
bit want = EXACTLY;
#endif
byte switched = 0;
bool kHas = false;  byte kS = 0;  bit kM;     /* the newest of the stream's two keys; S is seq, M the mode */
bool rHas = false;  byte rE = 0, rS = 0, rP = 0;  bit rM;
bool sHas = false;  byte sE = 0, sS = 0, sP = 0;  bit sM;
bool txOpen = false;  byte txE, txFrom, txTo;
byte pub = 0;                     /* positions [0,pub) are in the topic */
byte sure = 0;                    /* positions [0,sure) were delivered exactly once */
byte expect[EPOCHS];              /* next position owed, in epochs of exactly once */
byte resets = 0;

inline clear_tx() { txOpen = false; txE = 0; txFrom = 0; txTo = 0 }

inline keep() {                   /* the checkpoint record becomes visible in Kafka */
  assert(!kHas || cE > kE || (cE == kE && cS >= kS));  /* ORDER */
  assert(cP <= pub);                                   /* NOLOSS */
  kHas = true; kE = cE; kS = cS; kP = cP; kM = cM
}

inline commit_tx() {              /* records and checkpoint of a session that is exactly once */
  if
  :: (txTo > txFrom) ->
       assert(txFrom <= pub);                          /* NOLOSS */
       assert(txFrom == expect[txE]);                  /* NODUP, and no hole within an epoch */
       if :: (txTo > pub) -> pub = txTo :: else -> skip fi;
       if :: (txTo > sure) -> sure = txTo :: else -> skip fi
  :: else -> skip
  fi;
  expect[cE] = cP;
  keep(); clear_tx()
}

inline advance(ok) {              /* compare and set in Redis */
  assert(cP <= pub);                                   /* NOLOSS */
  if :: (!rHas || cE > rE || (cE == rE && cS > rS)) -> rHas = true; rE = cE; rS = cS; rP = cP; rM = cM; ok = true
     :: (rHas && cE == rE && cS == rS && cP == rP) -> ok = true
     :: else -> ok = false
  fi
}

proctype Session(byte me) {
  byte cE = 0, cS = 0, cP = 0, lE = 0, lS = 0, lP = 0, known = NONE;
  bit cM = 0, lM = 0, mode = 0;
  bool some = false, lHas = false, ok = false;

restart:
  skip;
  d_step { mode = want; cE = 0; cS = 0; cP = 0; cM = 0; known = NONE; some = false; ok = false;
           lHas = rHas; lE = rE; lS = rS; lP = rP; lM = rM;              /* Redis, then Kafka */
           clear_tx(); kOwner = me }
  atomic {                                                      /* the barrier */
    if :: (kOwner != me) -> goto restart
       :: (kOwner == me) -> some = kHas; if :: kHas -> cE = kE; cS = kS; cP = kP; cM = kM; known = kE :: else -> skip fi
    fi;
    if
    :: (lHas && (!some || lE > cE || (lE == cE && lS > cS))) -> cE = lE; cS = lS; cP = lP; cM = lM; some = true
    :: else -> skip
    fi;
    lHas = false; lE = 0; lS = 0; lP = 0; lM = 0;
    if :: (!some && pub > 0) -> goto restart                    /* BLOCKED(checkpoint-lost) */
       :: else -> skip
    fi;
#if NRESET == 0
    if :: some -> assert(cP >= sure) :: else -> skip fi         /* SWITCH */
#endif
  }
  if
  :: (!some) -> cM = mode; ok = true                            /* a new stream commits (0,0) first */
  :: (some && cM != mode) ->
#ifndef NO_MINT
       cE = cE + 1; cS = 0; assert(cE < EPOCHS);
#endif
       cM = mode; ok = true
  :: else -> skip
  fi;
  if
  :: (ok && mode == EXACTLY) ->
       atomic { if :: (kOwner != me) -> goto restart :: else -> skip fi;
                if :: d_step { commit_tx() }
                   :: d_step { commit_tx() } goto restart
                   :: goto restart
                fi }
  :: (mode == AT_LEAST) ->
#ifdef MINT_REDIS_FIRST
       d_step { advance(ok) }
       if :: !ok -> goto restart :: else -> skip fi;
#endif
#ifndef MINT_REDIS_ONLY
       if
       :: (known != cE) ->                                      /* Kafka knows an epoch before Redis does */
            atomic { if :: (kOwner != me) -> goto restart :: else -> skip fi;
                     if :: d_step { keep() }
                        :: d_step { keep() } goto restart
                        :: goto restart
                     fi }
       :: else -> skip
       fi;
#endif
       d_step { advance(ok) }
       if :: !ok -> goto restart :: else -> skip fi
  :: else -> skip
  fi;
  ok = false;
  known = NONE;

  do
  :: goto restart                                               /* crash, or anything in doubt */
  :: (mode == EXACTLY) -> d_step { advance(ok); ok = false }    /* the mirror, at any later time */
  :: (mode == AT_LEAST) ->                                      /* its mirror is fenced, and ends the session */
       atomic { if :: (kOwner != me) -> goto restart :: else -> skip fi; d_step { keep() } }
  :: (mode == EXACTLY && cP < NPOS) ->
       atomic { if :: (kOwner != me) -> goto restart
                   :: else -> txOpen = true; txE = cE; txFrom = cP; txTo = cP + 1;
                             if :: (cP + 2 <= NPOS) -> txTo = cP + 2 :: skip fi
                fi }
       atomic { if :: (kOwner != me || !txOpen) -> goto restart :: else -> skip fi;
                cP = txTo; cS = cS + 1;
                if :: d_step { commit_tx() }
                   :: d_step { commit_tx() } goto restart
                   :: goto restart
                fi }
  :: (mode == AT_LEAST && cP < NPOS) ->
#ifndef SAVE_FIRST
       d_step { assert(cP <= pub); if :: (cP + 1 > pub) -> pub = cP + 1 :: else -> skip fi }   /* acknowledged */
#endif
       cP = cP + 1; cS = cS + 1;
       d_step { advance(ok) }
       if :: !ok -> goto restart :: else -> ok = false fi
#ifdef SAVE_FIRST
       ; d_step { assert(cP <= pub + 1); if :: (cP > pub) -> pub = cP :: else -> skip fi }
#endif
  :: (mode == AT_LEAST && cS <= cP) ->                          /* a heartbeat */
       cS = cS + 1;
       d_step { advance(ok) }
       if :: !ok -> goto restart :: else -> ok = false fi
#if NRESET > 0
  :: (resets < NRESET && mode == AT_LEAST) ->                   /* a reset by compare and set */
       atomic { resets = resets + 1; cE = cE + 1; cS = 0; cP = 0; assert(cE < EPOCHS) }
       d_step { advance(ok) }
       if :: !ok -> goto restart :: else -> ok = false fi
#endif
  od
}

proctype Outside() {
  do
  :: atomic { (switched < SWITCH) -> switched = switched + 1; want = 1 - want }
  :: atomic { txOpen -> clear_tx(); kOwner = NONE }
#ifndef NO_REDIS_FAIL
  :: d_step { sHas = rHas; sE = rE; sS = rS; sP = rP; sM = rM }
  :: d_step { rHas = sHas; rE = sE; rS = sS; rP = sP; rM = sM }
  :: d_step { rHas = false; rE = 0; rS = 0; rP = 0; rM = 0 }
#endif
  od
}

init { atomic { run Session(0); run Session(1); run Outside() } }
#endif
