// Written by .ci/generate.py from the routes and replies of the server: do not change it by hand, run `make generated`.

type Split<P extends string> = P extends `${infer Head}/${infer Tail}` ? [Head, ...Split<Tail>] : [P];
type WithoutQuery<P extends string> = P extends `${infer Address}?${string}` ? Address : P;
/** A part of an address that is known only when the program runs stands for a parameter of the route. */
type Part<S extends string> = string extends S ? "{}" : S extends `${number}` ? "{}" : S;
type Join<T extends string[]> = T extends [infer Head extends string, ...infer Tail extends string[]]
  ? Tail extends [] ? Part<Head> : `${Part<Head>}/${Join<Tail>}`
  : "";
type Route<M extends string, P extends string> = `${M} ${Join<Split<WithoutQuery<P>>>}`;

/** The reply of a route; `never` where there is no such route. */
export type Reply<M extends string, P extends string> = Route<M, P> extends infer R extends keyof Replies ? Replies[R] : never;
/** The body that a route takes; FormData for uploads. */
export type Body<M extends string, P extends string> = Route<M, P> extends infer R extends keyof Bodies ? Bodies[R] : undefined;

/** An entry of the log: who did what, from which address, and when. */
export interface Access {
  at_ms: number;
  account: string;
  address: string;
  what: string;
  detail: string;
}

/** An account as the server's owner sees it. */
export interface AccountRow {
  name: string;
  role: "owner" | "experimenter" | "viewer";
  created_ms: number;
  second_factor: boolean;
}

/** What to do about a participant's payment. */
export type Action = "pay" | "pay by hand" | "bonus" | "screened out" | "look at" | "nothing";

/** What the page of plans, comparisons and reports begins with: the experiment as it stands. */
export interface AnalysisData {
  slug: string;
  may_edit: boolean;
  targets: number;
  d: number;
  currency: string;
  races: boolean;
  names: string[];
}

/** One answer: the token of the query, the target that was judged nearer, and what the page measured. */
export interface AnswerBody {
  token: string;
  winner: number;
  rt_ms?: number;
  query_wait_ms?: number;
  onset_client_ms?: number;
  network_latency_ms?: number;
  input?: "mouse" | "touch" | "key" | "script" | "";
  sent_attempts?: number;
  blur_during_trial?: boolean;
  viewport_w?: number;
  viewport_h?: number;
}

/** What became of one answer: whether it is stored, or its error. */
export interface AnswerReply {
  token: string;
  recorded?: boolean;
  duplicate?: boolean;
  count?: number;
  error?: ErrorContent;
  warn?: boolean;
  out?: string;
}

/** Answers in order, rows of `columns`: time, response time, side, type, and whether the newest map predicts it. */
export interface AnswersOfParticipantReply {
  columns: string[];
  answers: ([number, number | null, "left" | "right", string, boolean | null])[];
}

/** What became of each answer. */
export interface AnswersReply {
  results: AnswerReply[];
}

/** How many answers there are, how many are wanted, and when they will be there. */
export interface AnswersTile {
  total: number;
  a_minute: number;
  goal: number;
  goal_is: string;
  goal_from: string;
  to_go: number;
  finish_ms: number | null;
}

/** An API token to be made: what it is called, what it may do, on which experiment, and for how many days. */
export interface ApiTokenBody {
  label: string;
  scope?: "read" | "write";
  experiment?: string;
  days?: number;
}

/** All that the participant page needs to begin or to go on. */
export interface ArrivalReply {
  numbers: TurnNumbers;
  session: string;
  tryout: boolean;
  participant: string;
  status: string;
  answers: number;
  step: string;
  resumed: boolean;
  review: boolean;
  language: string;
  page: PageSettings;
  steps: StepsContent;
  targets: ShownTarget[];
  load_all: boolean;
  soon: number[];
}

/** What the page knows when it opens: the parameters of its address, the session it had before a reload, and a secret that this browser keeps. */
export interface ArriveBody {
  parameters?: Record<string, string>;
  session?: string | null;
  browser?: string;
}

/** Whether the learning process runs. */
export interface BackendState {
  alive: boolean;
  workers: number;
  errors: string[];
}

/** Who did what to an experiment, and when. */
export interface Change {
  at_ms: number;
  by: string;
  what: string;
  detail: string;
}

/** An account after a change: what was changed about it. */
export interface ChangedAccountReply {
  name?: string;
  role?: "owner" | "experimenter" | "viewer";
  second_factor?: boolean;
  experiments?: number;
}

/** What is wrong with a draft, and what it would be where nothing is. */
export interface CheckReply {
  problems: ProblemRow[];
  summary: DraftSummary | null;
  files: DraftFiles | null;
}

/** The comprehension check. */
export interface ComprehensionContent {
  questions: ShownQuestion[];
  attempts: number;
  attempts_left: number;
}

/** The text that is agreed to. */
export interface ConsentText {
  html: string;
  version: string;
  decline_url: string | null;
}

/** What the page showed as the cost: another cost is refused, because nobody has agreed to it. */
export interface CostBody {
  cost: number;
}

/** The participants about whom was decided. */
export interface DecidedReply {
  participants: ParticipantRow[];
}

/** Whether to keep a participant: the experimenter's decision, or `auto` for the proposal. */
export interface DecisionBody {
  keep: "keep" | "exclude" | "auto";
  note?: string;
}

/** Decisions about several participants; all are carried out, or none. */
export interface DecisionsBody {
  decisions: NamedDecision[];
}

/** What is kept of an experiment that was deleted, and for how long; None: for ever. */
export interface DeletedReply {
  slug: string;
  bundle: string;
  kept_days: number | null;
  media_problems: string[];
}

/** An experiment's file while it is being written; `draft` where the ZIP of the caller's draft belongs to it, `zip` where targets will come in a ZIP that was not sent yet. */
export interface DraftBody {
  spec: string;
  zip?: boolean;
  draft?: boolean;
  slug?: string;
}

/** The files of a draft; `reread` where the ZIP has to be sent again. */
export interface DraftFiles {
  zip: string | null;
  bytes: number | null;
  reread: boolean;
  count: number;
  odd: number;
  targets: TargetRow[];
  pictures: DraftPicture[];
}

/** A picture of a text, which is no target. */
export interface DraftPicture {
  name: string;
  media: string;
  bytes: number;
  width: number;
  height: number;
}

/** A draft as it was last saved; `version` is 0 where there is none. */
export interface DraftReply {
  version: number;
  spec: string | null;
  versions: DraftVersionRow[];
  zip: string | null;
}

/** What an experiment with this file would be. */
export interface DraftSummary {
  title: string;
  targets: number | null;
  pictures: string[];
  samplers: SamplerShare[];
  queries: number;
  minutes: number | null;
  steps: string[];
  platform: string;
}

/** A version of a draft with its text. */
export interface DraftTextReply {
  number: number;
  at_ms: number;
  by: string;
  lines: number;
  spec: string;
}

/** The text of a draft, the version that it was written from (0: none), and the window that saves it. */
export interface DraftVersionBody {
  spec: string;
  known: number;
  window: string;
}

/** A version of a draft. */
export interface DraftVersionRow {
  number: number;
  at_ms: number;
  by: string;
  lines: number;
}

/** The ZIP of a draft, and what is wrong with it. */
export interface DraftZipReply {
  zip: string | null;
  problems?: ProblemRow[];
}

/** How many sessions were ended. */
export interface EndedSessionsReply {
  ended: number;
}

/** Whom to erase: a platform id, participant id or link's id; what becomes of the answers; experiments, all if none. */
export interface ErasureBody {
  id: string;
  answers: "keep" | "remove";
  experiments?: string[];
}

/** How far an erasure is. */
export interface ErasureRow {
  erasure: string;
  kind: "person" | "experiment";
  by: string;
  asked_ms: number;
  slugs: string[];
  answers: "keep" | "remove";
  state: "waiting" | "running" | "done" | "failed";
  step: string;
  progress: number;
  people: number;
  removed: number;
  bundles: string[];
  unreached: string[];
  ended_ms: number;
  error: string;
}

/** An error: what happened, where, and what to do. */
export interface ErrorContent {
  code: string;
  message: string;
  where: string;
  hint: string;
}

/** An accuracy on held-out answers with its 95 % interval, and the log-loss in nats. */
export interface Estimate {
  accuracy: number;
  low: number;
  high: number;
  log_loss: number;
}

/** Something that happened on the page. */
export interface EventBody {
  event: string;
  trial?: number;
  client_ms?: number;
  detail?: string;
}

/** An experiment to begin with. */
export interface ExampleRow {
  name: string;
  spec: string;
  zip: boolean;
}

/** The participants and answers that a fit leaves out, and the share that its embedding predicts of them. */
export interface ExcludedAnswers {
  participants: number;
  answers: number;
  accuracy: number;
}

/** An experiment with the accounts that it belongs to and is shared with, by their names. */
export interface ExperimentReply {
  slug: string;
  state: "draft" | "open" | "paused" | "closed";
  revision: number;
  owner: string;
  shared: Record<string, string>;
  created_ms: number;
  opened_ms: number;
  answers: number;
}

/** What the page of exports begins with. */
export interface ExportsData {
  slug: string;
  may_edit: boolean;
  samplers: string[];
  names: string[];
}

/** A file of the map: its width in print, the axes (none: all pairs), and the group of each target (-1: none). */
export interface FigureBody {
  width_mm?: number;
  axes?: [number, number] | null;
  groups?: number[] | null;
  group_names?: string[];
}

/** The figures of one participant; None where there are no such trials, no times or no model. `fit_expected` is the share that the map predicts of careful people's answers to the same queries. `guess_p` is the probability that a guesser does as well, and `careless_p` that a careful person looks as careless: all that is known, combined. `hesitation` is the rank correlation of response times with the map's margins, negative where easy queries are answered faster, with its 95 % interval. */
export interface Figures {
  answers: number;
  asked?: number | null;
  completeness?: number | null;
  catch_trials: number;
  catch_accuracy?: number | null;
  catch_p?: number | null;
  geometric_mean_rt_ms?: number | null;
  median_rt_ms?: number | null;
  fast_share?: number | null;
  timed: number;
  shared_answers: number;
  agreement?: number | null;
  agreement_by_chance?: number | null;
  repeats: number;
  repeats_swapped: number;
  repeat_consistency?: number | null;
  sided: number;
  left_share?: number | null;
  side_p?: number | null;
  longest_run: number;
  alternation?: number | null;
  triads: number;
  cycles: number;
  cycles_by_chance?: number | null;
  fit_answers: number;
  fit_accuracy?: number | null;
  fit_expected?: number | null;
  guess_p?: number | null;
  careless_p?: number | null;
  hesitation_answers: number;
  hesitation?: number | null;
  hesitation_low?: number | null;
  hesitation_high?: number | null;
}

/** How many answers the page has given; `incomplete` when it has tried for long and cannot bring the rest across. */
export interface FinishBody {
  given: number;
  incomplete?: boolean;
}

/** How many answers are stored, and how many trials are missing; with the way out once none is. */
export interface FinishReply {
  stored: number;
  complete: boolean;
  missing?: number;
  save_incomplete?: boolean;
  debrief?: string;
  participant?: string;
  code?: string | null;
  redirect?: string | null;
  form?: [string, Record<string, string>] | null;
  credited?: boolean;
  out?: string;
}

/** Result of a job `fit`: an embedding on its principal axes, how well it predicts, and where it started. */
export interface FitResult {
  coordinates: any;
  noise: Record<string, any>;
  answers: number;
  loss: number;
  accuracy: number;
  converged: boolean;
  sampler: string;
  start: StartedFrom | null;
  excluded: ExcludedAnswers;
  held_out: HeldOutAccuracy | null;
  ceiling: Record<string, any> | null;
  notes: string[];
}

/** Something to look at: its name, and why in a sentence. Not every flag `excludes`: some only inform. */
export interface Flag {
  name: string;
  reason: string;
  excludes: boolean;
}

/** An experiment with its file as it was written. */
export interface FullExperimentReply {
  slug: string;
  state: "draft" | "open" | "paused" | "closed";
  revision: number;
  owner: string;
  shared: Record<string, string>;
  created_ms: number;
  opened_ms: number;
  answers: number;
  title: string;
  spec: string;
  address: string;
}

/** How many people of each earlier experiment are kept out. */
export interface GroupsReply {
  people: Record<string, number>;
}

/** The guide, with a try-out that arrives as from the platform. */
export interface GuideReply {
  platform: string;
  link: string;
  create: string;
  back: string;
  code: string;
  steps: string[];
  test: string;
  secure: boolean;
  open: boolean;
  invited_only: boolean;
}

export interface HTTPValidationError {
  detail?: ValidationError[];
}

export interface HeldOutAccuracy {
  answers: number;
  folds: number;
  everybody: Estimate;
  kept_answers?: number;
  with?: Estimate;
  without?: Estimate;
  change?: Estimate;
}

/** Rows of [from (ms), to (ms), count]. */
export interface Histograms {
  response: number[][];
  wait: number[][];
}

/** A sampler's generations: `points` are rows of `columns`. */
export interface HistoryReply {
  sampler: string;
  columns: string[];
  points: ((number | null)[])[];
  maps: KeptMap[];
}

/** The id of what was ended or revoked. */
export interface IdReply {
  id: string;
}

/** An experiment that was imported; `notes` say what could not be taken over. */
export interface ImportedReply {
  slug: string;
  state: string;
  answers: number;
  participants: number;
  notes: string[];
  message: string;
  address: string;
}

/** One page of the instructions. */
export interface InstructionPage {
  html: string;
  image: string | null;
}

/** The name and role of the account that somebody is invited to make. */
export interface InvitationBody {
  name: string;
  role?: "owner" | "experimenter" | "viewer";
}

/** An invitation without its secret; `open` where it can still be used. */
export interface InvitationRow {
  id: string;
  purpose: string;
  name: string;
  role: "owner" | "experimenter" | "viewer";
  by: string;
  created_ms: number;
  ends_ms: number;
  used_ms: number;
  open: boolean;
}

/** What is asked of the learning process: its kind, and arguments that depend on it. */
export interface JobBody {
  kind: string;
  arguments?: Record<string, any>;
}

/** A request to the learning process; the kind says what its result is: that of a fit is a `FitResult`. */
export interface JobReply {
  request: string;
  kind: string;
  experiment: string;
  arguments: Record<string, any>;
  asked_ms: number;
  asked_by: string;
  state: "waiting" | "running" | "done" | "failed" | "cancelled";
  progress: number;
  note: string;
  result: any;
  error: string;
  cancel: boolean;
  tries: number;
  began_ms: number;
  ended_ms: number;
  warning: string;
}

/** A generation whose coordinates were kept. */
export interface KeptMap {
  line: string;
  generation: number | null;
  absorbed: number | null;
  published_ms: number | null;
}

/** Requests of a route, and how many milliseconds half and nearly all of them took at most; None where unknown. */
export interface Latency {
  route: string;
  requests: number;
  median_ms: number | null;
  p99_ms: number | null;
}

/** What the editor of a new experiment begins with. */
export interface LaunchData {
  examples: ExampleRow[];
}

/** What a page shows: its frame, where the targets are, and the sizes of pictures (longer side 1) and of texts. */
export interface LayoutBody {
  frame: [number, number];
  points: ([number, number])[];
  pictures: ([number, number])[];
  labels: ([number, number])[];
  smallest: number;
  largest: number;
  dot: number;
  gap: number;
}

/** Where a target stands on the map, with its label and the line to it, in pixels. */
export interface LayoutMark {
  picture: boolean;
  centre: number[];
  label: number[] | null;
  leader: number[] | null;
}

/** Where everything on the map stands; a mark is None where a target is outside the frame. */
export interface LayoutReply {
  side: number;
  font: number;
  dot: number;
  marks: (LayoutMark | null)[];
}

/** Somebody who is not paid by this, and why. */
export interface LeftOutRow {
  participant: string;
  why: string;
}

/** A link as it stands at the platform. */
export interface LinkBody {
  link: string;
}

/** A link that works once, and for whom. */
export interface LinkReply {
  link: string;
  name?: string;
  role?: "owner" | "experimenter" | "viewer";
}

/** What the map begins with. */
export interface MapData {
  slug: string;
  may_edit: boolean;
  answers: number;
  samplers: string[];
  targets: MapTarget[];
}

/** Numbers of an embedding, where they are known. */
export interface MapNumbers {
  generation?: number;
  absorbed?: number;
  loss?: number;
  published_ms?: number;
  held_right?: number;
  held_total?: number;
  ceiling?: number;
  reported_of?: number;
  left_out?: number;
  feature_weight?: number;
  accuracy?: number;
  accuracy_low?: number;
  accuracy_high?: number;
  refit_ms?: number;
  search_ms?: number;
}

/** A target as the map draws it. */
export interface MapTarget {
  index: number;
  kind: "text" | "html" | "image" | "video" | "audio";
  media: string;
  width: number;
  height: number;
  name: string;
  file: string;
  html: string;
}

/** An embedding as the map draws it. */
export interface ModelReply {
  sampler: string;
  line: string;
  numbers: MapNumbers;
  coordinates: number[][];
  spread: number[][][] | null;
  nearest: number[][];
}

/** The name of an experiment: of a copy, or typed once more before it is deleted. */
export interface NameBody {
  name: string;
}

/** A decision about one participant. */
export interface NamedDecision {
  keep: "keep" | "exclude" | "auto";
  note?: string;
  participant: string;
}

/** An experiment that was just made, with its link and what `check` warns of. */
export interface NewExperimentReply {
  slug: string;
  state: "draft" | "open" | "paused" | "closed";
  revision: number;
  owner: string;
  shared: Record<string, string>;
  created_ms: number;
  opened_ms: number;
  answers: number;
  address: string;
  warnings: string[];
}

/** A new API token with its secret, which is sent once. */
export interface NewTokenReply {
  token: string;
  id: string;
  ends_ms: number;
}

/** What the overview begins with. */
export interface OverviewData {
  slug: string;
  may_edit: boolean;
  samplers: string[];
  names: string[];
}

/** The overview of an experiment, which the stream sends, too. */
export interface OverviewReply {
  slug: string;
  title: string;
  state: "draft" | "open" | "paused" | "closed";
  revision: number;
  now_ms: number;
  opened_ms: number;
  targets: number;
  answers: AnswersTile;
  participants: ParticipantsTile;
  times: Times;
  fallbacks: Share;
  late: number;
  types: Record<string, number>;
  backend: BackendState;
  samplers: SamplerRow[];
  server: Latency[];
  series: Series;
  histograms: Histograms;
  targets_asked: TargetsAsked;
  verdict: VerdictRow;
  sentences: Sentence[];
}

/** One's own account. */
export interface OwnAccountReply {
  name: string;
  role: "owner" | "experimenter" | "viewer";
  second_factor: boolean;
  recovery_codes: number;
  sessions: SessionRow[];
  tokens: TokenRow[];
}

/** How the participant page looks, and what it takes as an answer. */
export interface PageSettings {
  title: string;
  instructions: string;
  max_queries: number;
  skip_button: boolean;
  keys: string[];
  fixation_ms: number;
  blank_ms: number;
  min_rt_ms: number;
  warn_rt_ms: number | null;
  max_trial_ms: number | null;
  enlarge: boolean;
  stimulus_size: string;
  background: string;
  fullscreen: boolean;
  devices: string[];
  min_viewport: number[];
}

/** A participant with their figures, the flags and the decision. */
export interface ParticipantRow {
  participant: string;
  puid: string;
  source: string;
  status: string;
  asked: number;
  answers: number;
  first_ms: number;
  last_ms: number;
  completed_ms: number;
  keep: boolean;
  keep_auto: boolean;
  keep_manual: string;
  note: string;
  decided_by: string;
  decided_ms: number;
  figures: Figures | null;
  flags: Flag[];
}

/** What the participant page's program needs before it arrives. */
export interface ParticipantSetting {
  strings: Record<string, string>;
  language: string;
  background: string;
  stimulus_size: string;
  preview: boolean;
}

/** What the page of participants begins with. */
export interface ParticipantsData {
  slug: string;
  may_edit: boolean;
  samplers: string[];
}

/** Participants, as of the answer `as_of`; `fresh` is false where newer figures are being found. */
export interface ParticipantsReply {
  as_of: string | null;
  fresh: boolean;
  total: number;
  offset: number;
  participants: ParticipantRow[];
}

/** How many people opened the link, began and finished; how many hold a place, and how many places there are. `wanted` is 0 where the file names no number. */
export interface ParticipantsTile {
  arrived: number;
  began: number;
  completed: number;
  held: number;
  wanted: number;
}

/** The present password and the new one. */
export interface PasswordBody {
  old: string;
  new: string;
}

/** The same with the key of the payment, and what the page showed: how many submissions and which sum. */
export interface PayBody {
  action: "approve" | "bonus";
  participants?: string[];
  bonuses?: Record<string, any>;
  key: string;
  count: number;
  sum: number;
}

/** One thing to do about one participant; `amount` is a decimal number as text, None where the file gives none. */
export interface PayRowReply {
  participant: string;
  platform_id: string;
  assignment: string;
  status: string;
  platform_status: string;
  action: Action;
  amount: string | null;
  reason: string;
}

/** How many rows have an action, and the sum of their amounts. */
export interface PaySum {
  action: Action;
  count: number;
  amount: string;
}

/** The list of payments; `fresh` is false where the catch trials of somebody are still being counted. */
export interface PaymentReply {
  platform: string;
  currency: string;
  fresh: boolean;
  sums: PaySum[];
  rows: PayRowReply[];
}

/** A payment; `open` where Prolific has not confirmed it. */
export interface PaymentRow {
  key: string;
  action: "approve" | "bonus";
  count: number;
  sum: number;
  by: string;
  at_ms: number;
  state: string;
  open: boolean;
}

/** What the page of all accounts begins with. */
export interface PeopleData {
  own: string;
  accounts: AccountRow[];
  invitations: InvitationRow[];
  log: Access[];
}

/** A kept bundle that a person is in. */
export interface PersonInBundle {
  bundle: string;
  slug: string;
  participant: string;
}

/** What an experiment stores of a person, as counts. */
export interface PersonInExperiment {
  slug: string;
  participant: string;
  puid: string;
  source: string;
  status: string;
  first_ms: number;
  stored: Record<string, number>;
}

/** What is stored of a person. */
export interface PersonReply {
  id: string;
  experiments: PersonInExperiment[];
  bundles: PersonInBundle[];
}

/** How many places the study is to have, and what the further ones cost by the page. */
export interface PlacesBody {
  places: number;
  cost: number;
}

/** What is to be paid: whose submissions are approved, or the bonus of each in hundredths. */
export interface PlanBody {
  action: "approve" | "bonus";
  participants?: string[];
  bonuses?: Record<string, any>;
}

/** What a payment would do. Amounts are in hundredths, without Prolific's fees; `problem` is why it is refused. */
export interface PlanReply {
  action: "approve" | "bonus";
  count: number;
  sum: number;
  currency: string;
  left_out: LeftOutRow[];
  committed: number;
  limit: number | null;
  problem: string;
}

/** The queries of the practice. */
export interface PracticeContent {
  queries: PracticeQuery[];
  feedback: boolean;
}

/** A query of the practice; `nearer` is the target that should be chosen. */
export interface PracticeQuery {
  head: number;
  left: number;
  right: number;
  nearer: number;
}

/** One trial of the practice: which of its queries, what was chosen, and how long it took. */
export interface PracticeTrial {
  query: number;
  winner: number;
  rt_ms?: number;
}

/** What the privacy page begins with. */
export interface PrivacyData {
  erasures: ErasureRow[];
  may_erase: boolean;
  keep_bundles_days: number;
}

/** A mistake in a file at its line, or in the ZIP called `source`. */
export interface ProblemRow {
  message: string;
  line: number;
  column: number;
  path: string;
  hint: string;
  warning: boolean;
  sentence: string;
  suggestion: string;
  source: string;
}

/** The account's connection to Prolific, without its secrets; `events` counts what webhooks have sent. */
export interface ProlificAccountReply {
  token: boolean;
  from_environment: boolean;
  workspace: string;
  webhooks: boolean;
  events: Record<string, number>;
}

/** An experiment at Prolific. `problems` say what keeps a study from being made, and `draft_cost` what it would cost; who took part in the experiments `not_from` does not see it. `limit` is the file's spend_at_most in hundredths, or None; `committed` is what is promised and paid. */
export interface ProlificReply {
  token: boolean;
  problems: string[];
  reward: number;
  places: number;
  minutes: number;
  currency: string;
  draft_cost: number;
  limit: number | null;
  committed: number;
  study: ProlificStudyReply | null;
  not_from: string[];
  webhooks: boolean;
  payments: PaymentRow[];
}

/** The study at Prolific as it was last seen. Amounts are in hundredths of the account's currency. */
export interface ProlificStudyReply {
  id: string;
  page: string;
  status: string;
  places: number;
  taken: number;
  reward: number;
  currency: string;
  counts: Record<string, number>;
  seen_ms: number;
  own: boolean;
}

/** The median and the 95th percentile of times in milliseconds. */
export interface Quantiles {
  median: number | null;
  p95: number | null;
}

/** A query with its token, or `done`, `over` or `none` in its place. */
export interface QueryReply {
  token?: string;
  head?: number;
  left?: number;
  right?: number;
  sampler?: string;
  score?: number;
  trial?: number;
  soon?: number[];
  done?: boolean;
  over?: boolean;
  none?: boolean;
  answers?: number;
  out?: string;
}

/** A question after the trials. */
export interface QuestionContent {
  name: string;
  html: string;
  type: string;
  options: string[];
  points: number;
  required: boolean;
}

/** How a request arrived: by which scheme, for which host, and what proxies did to it. `forwarded` says whether `X-Forwarded-For` was there and believed, `path` whether the path of the public address was kept or stripped, and `cookie` whether the cookie of an earlier request came back. */
export interface ReachedReply {
  scheme: string;
  host: string;
  public_url: string;
  forwarded: "none" | "believed" | "ignored";
  path: "kept" | "stripped" | "none";
  cookie: boolean;
  time_ms: number;
  takes_from_network: boolean;
}

/** The recovery codes of a second factor, which are sent once. */
export interface RecoveryCodesReply {
  recovery_codes: string[];
}

/** How many simulated people take part. */
export interface RehearsalBody {
  people?: number;
}

/** A scratch copy: the experiment that it rehearses, how many answers it has and will have, and when it is removed. `outcome` says how the simulated people came through; it is empty while they take part. */
export interface RehearsalReply {
  slug: string;
  of: string;
  running: boolean;
  answers: number;
  expected_answers: number;
  outcome: string;
  removed_ms: number;
}

/** An experiment after a new revision of its file. */
export interface RevisedExperimentReply {
  slug: string;
  state: "draft" | "open" | "paused" | "closed";
  revision: number;
  owner: string;
  shared: Record<string, string>;
  created_ms: number;
  opened_ms: number;
  answers: number;
  warnings: string[];
}

/** The role that an account is to have. */
export interface RoleBody {
  role: "owner" | "experimenter" | "viewer";
}

export interface SamplerRow {
  name: string;
  class: string;
  active: boolean;
  share: number;
  answers: number;
  queue: number;
  pending: number;
  fallbacks: number;
  generation: number | null;
  absorbed: number | null;
  accuracy: number | null;
  accuracy_low: number | null;
  accuracy_high: number | null;
  judged: number;
  evaluated: number;
  ceiling: number | null;
  loss: number | null;
  refit_ms: number | null;
  search_ms: number | null;
  published_ms: number | null;
  held_total: number | null;
}

export interface SamplerShare {
  name: string;
  class: string;
  share: number;
}

/** The number of the version that was saved; 0 after the draft was discarded. */
export interface SavedDraftReply {
  version: number;
}

/** The password, and for switching a second factor on what the first step returned with a code of the app. */
export interface SecondFactorBody {
  password: string;
  setup?: string;
  code?: string;
}

/** The secret of a second factor that is being set up. */
export interface SecondFactorReply {
  secret: string;
  qr_code: string;
  setup: string;
}

/** Something that needs attention, and what to do about it: `link` is the words of a link to the experiment's `page`. */
export interface Sentence {
  level: string;
  what: string;
  hint: string;
  page: string;
  link: string;
}

/** Answers over time: rows of the start of the bin (ms), answers, first answers and completions. */
export interface Series {
  minutes: number;
  rows: number[][];
}

/** A session of one's own account; `this` is the one that asks. */
export interface SessionRow {
  id: string;
  this: boolean;
  browser: string;
  address: string;
  created_ms: number;
  used_ms: number;
}

/** What the settings of an experiment begin with. */
export interface SettingsData {
  slug: string;
  may_edit: boolean;
  state: "draft" | "open" | "paused" | "closed";
  everybodys: boolean;
  revision: number;
  spec: string;
  zip: boolean;
  answers: number;
  accounts: SharedAccount[];
  changes: Change[];
  access: string;
  rehearsal: string;
  keep_bundles_days: number;
}

/** A count, and its share of all answers. */
export interface Share {
  count: number;
  share: number;
}

/** An account that an experiment can be shared with. */
export interface SharedAccount {
  name: string;
  role: "owner" | "experimenter" | "viewer";
  may: string;
}

/** Who beside the owner may look at an experiment or change it, by the name of their account. */
export interface SharedBody {
  accounts: Record<string, any>;
}

/** A question of the comprehension check. */
export interface ShownQuestion {
  html: string;
  options: string[];
}

/** A target as the participant page shows it; never its file name, which may tell the condition. */
export interface ShownTarget {
  kind: "text" | "html" | "image" | "video" | "audio";
  source?: string;
  alt?: string;
  width?: number;
  height?: number;
  text?: string;
  html?: string;
}

/** Said when a try-out has gone to its end. */
export interface SkippedReply {
  skipped: boolean;
}

/** The published map that a fit started from beside others, as `salmon fit --start` reads it. */
export interface StartedFrom {
  source: string;
  targets: number[];
  coordinates: number[][];
}

/** The state an experiment is to be in. */
export interface StateBody {
  state: "open" | "paused" | "closed";
}

/** What a participant did in a step before or after the trials; each step reads its own fields. */
export interface StepBody {
  agreed?: boolean;
  version?: string;
  language?: string;
  attempt?: number;
  options?: string[];
  trials?: PracticeTrial[];
  replies?: Record<string, string>;
}

/** The status after a step, and the next step. */
export interface StepReply {
  right?: boolean;
  attempts_left?: number;
  status: string;
  next: string;
}

/** What each step shows, in `order`; those that an experiment does not have are left out. */
export interface StepsContent {
  order: string[];
  consent?: ConsentText;
  instructions?: InstructionPage[];
  practice?: PracticeContent;
  comprehension?: ComprehensionContent;
  questions?: QuestionContent[];
}

/** How many events were stored. */
export interface StoredReply {
  stored: number;
}

/** The id of a study that was made on Prolific's own page. */
export interface StudyBody {
  study: string;
}

/** A target: its file, how often it was asked about, and what looks odd about it. */
export interface TargetRow {
  index: number;
  kind: "text" | "html" | "image" | "video" | "audio";
  name: string;
  html: string;
  media: string;
  alt: string;
  sha256: string;
  bytes: number;
  width: number;
  height: number;
  head: number;
  foot: number;
  won: number;
  odd: string[];
}

/** For each target, how often it was the head, a foot, and the winner. */
export interface TargetsAsked {
  head: number[];
  foot: number[];
  won: number[];
}

/** What the page of targets begins with. */
export interface TargetsData {
  slug: string;
  may_edit: boolean;
  targets: TargetRow[];
}

/** Response times, times between trials, and times on the network. */
export interface Times {
  response: Quantiles;
  wait: Quantiles;
  network: Quantiles;
}

/** A token of Prolific, and the workspace where the account has several. */
export interface TokenBody {
  token: string;
  workspace?: string;
}

/** An API token without its secret. */
export interface TokenRow {
  id: string;
  label: string;
  scope: "read" | "write";
  experiment: string;
  created_ms: number;
  ends_ms: number;
  used_ms: number;
}

/** The turns of a participant that are open, and the next one. */
export interface TurnNumbers {
  open: number[];
  next: number;
}

export interface ValidationError {
  loc: (string | number)[];
  msg: string;
  type: string;
  input?: any;
  ctx?: Record<string, any>;
}

/** The first line of the overview, and the button that follows from it. */
export interface VerdictRow {
  level: "good" | "info" | "warning" | "error";
  what: string;
  why: string;
  action: "" | "open" | "close" | "invite";
}

/** A window that shows a draft, or has just been closed. */
export interface WindowBody {
  window: string;
  closed?: boolean;
}

/** Who else has a draft open, and its newest version. */
export interface WindowsReply {
  others: string[];
  version: number;
}

/** The status of somebody who wanted to withdraw: `withdrawn`, or how their part had ended before. */
export interface WithdrawnReply {
  status: string;
}

export interface Replies {
  "POST /answer": Record<string, any>;
  "GET /api/account": OwnAccountReply;
  "GET /api/account/prolific": ProlificAccountReply;
  "PUT /api/account/prolific": ProlificAccountReply;
  "DELETE /api/account/prolific": ProlificAccountReply;
  "POST /api/account/second-factor": SecondFactorReply;
  "PUT /api/account/second-factor": RecoveryCodesReply;
  "DELETE /api/account/second-factor": ChangedAccountReply;
  "DELETE /api/account/sessions": EndedSessionsReply;
  "DELETE /api/account/sessions/{}": IdReply;
  "POST /api/account/tokens": NewTokenReply;
  "DELETE /api/account/tokens/{}": IdReply;
  "GET /api/accounts": AccountRow[];
  "DELETE /api/accounts/{}": ChangedAccountReply;
  "POST /api/accounts/{}/reset": LinkReply;
  "PUT /api/accounts/{}/role": ChangedAccountReply;
  "DELETE /api/accounts/{}/second-factor": ChangedAccountReply;
  "POST /api/check": CheckReply;
  "GET /api/doctor": ReachedReply;
  "GET /api/draft": DraftReply;
  "PUT /api/draft": SavedDraftReply;
  "DELETE /api/draft": SavedDraftReply;
  "POST /api/draft/targets": DraftZipReply;
  "DELETE /api/draft/targets": DraftZipReply;
  "GET /api/draft/versions/{}": DraftTextReply;
  "POST /api/draft/windows": WindowsReply;
  "GET /api/examples": ExampleRow[];
  "GET /api/experiments": ExperimentReply[];
  "POST /api/experiments": NewExperimentReply;
  "POST /api/experiments/import": ImportedReply;
  "GET /api/experiments/{}": FullExperimentReply;
  "DELETE /api/experiments/{}": DeletedReply;
  "GET /api/experiments/{}/changes": Change[];
  "POST /api/experiments/{}/copy": ExperimentReply;
  "GET /api/experiments/{}/history": HistoryReply;
  "POST /api/experiments/{}/map/layout": LayoutReply;
  "GET /api/experiments/{}/model": ModelReply;
  "GET /api/experiments/{}/overview": OverviewReply;
  "GET /api/experiments/{}/participants": ParticipantsReply;
  "PUT /api/experiments/{}/participants": DecidedReply;
  "PUT /api/experiments/{}/participants/{}": ParticipantRow;
  "GET /api/experiments/{}/participants/{}/answers": AnswersOfParticipantReply;
  "GET /api/experiments/{}/payment": PaymentReply;
  "GET /api/experiments/{}/prolific": ProlificReply;
  "POST /api/experiments/{}/prolific/groups": GroupsReply;
  "POST /api/experiments/{}/prolific/payments": ProlificReply;
  "POST /api/experiments/{}/prolific/payments/plan": PlanReply;
  "DELETE /api/experiments/{}/prolific/payments/{}": ProlificReply;
  "POST /api/experiments/{}/prolific/payments/{}/check": ProlificReply;
  "POST /api/experiments/{}/prolific/places": ProlificReply;
  "POST /api/experiments/{}/prolific/refresh": ProlificReply;
  "POST /api/experiments/{}/prolific/study": ProlificReply;
  "PUT /api/experiments/{}/prolific/study": ProlificReply;
  "DELETE /api/experiments/{}/prolific/study": ProlificReply;
  "POST /api/experiments/{}/prolific/webhooks": ProlificReply;
  "GET /api/experiments/{}/recruitment": GuideReply;
  "POST /api/experiments/{}/recruitment/check": string[];
  "GET /api/experiments/{}/rehearsal": RehearsalReply;
  "POST /api/experiments/{}/rehearsal": RehearsalReply;
  "DELETE /api/experiments/{}/rehearsal": RehearsalReply;
  "GET /api/experiments/{}/requests": JobReply[];
  "POST /api/experiments/{}/requests": JobReply;
  "GET /api/experiments/{}/requests/{}": JobReply;
  "DELETE /api/experiments/{}/requests/{}": JobReply;
  "PUT /api/experiments/{}/shared": ExperimentReply;
  "PUT /api/experiments/{}/spec": RevisedExperimentReply;
  "PUT /api/experiments/{}/state": ExperimentReply;
  "GET /api/experiments/{}/targets": TargetRow[];
  "POST /api/experiments/{}/tryout": LinkReply;
  "GET /api/invitations": InvitationRow[];
  "POST /api/invitations": LinkReply;
  "DELETE /api/invitations/{}": IdReply;
  "GET /api/log": Access[];
  "GET /api/people": PersonReply;
  "GET /api/people/erasures": ErasureRow[];
  "POST /api/people/erasures": ErasureRow;
  "GET /api/people/erasures/{}": ErasureRow;
  "POST /api/prolific/events/{}": Record<string, string>;
  "POST /create_user": Record<string, any>;
  "POST /create_user/{}/{}": Record<string, any>;
  "POST /e/{}/answers": AnswersReply;
  "POST /e/{}/arrive": ArrivalReply;
  "POST /e/{}/events": StoredReply;
  "POST /e/{}/finish": FinishReply;
  "GET /e/{}/query": QueryReply;
  "POST /e/{}/skip": SkippedReply;
  "POST /e/{}/steps/{}": StepReply;
  "POST /e/{}/withdraw": WithdrawnReply;
  "GET /logs": Record<string, string[]>;
  "GET /meta": Record<string, any>;
  "GET /query": Record<string, any>;
  "GET /reset": Record<string, any>;
  "DELETE /reset": Record<string, any>;
  "GET /schema.json": Record<string, any>;
}

export interface Bodies {
  "PUT /api/account/password": PasswordBody;
  "PUT /api/account/prolific": TokenBody;
  "PUT /api/account/second-factor": SecondFactorBody;
  "DELETE /api/account/second-factor": SecondFactorBody;
  "POST /api/account/tokens": ApiTokenBody;
  "PUT /api/accounts/{}/role": RoleBody;
  "POST /api/check": DraftBody;
  "PUT /api/draft": DraftVersionBody;
  "POST /api/draft/targets": FormData;
  "POST /api/draft/windows": WindowBody;
  "POST /api/experiments": FormData;
  "POST /api/experiments/import": FormData;
  "DELETE /api/experiments/{}": NameBody;
  "POST /api/experiments/{}/copy": NameBody;
  "POST /api/experiments/{}/map.{}": FigureBody;
  "POST /api/experiments/{}/map/layout": LayoutBody;
  "PUT /api/experiments/{}/participants": DecisionsBody;
  "PUT /api/experiments/{}/participants/{}": DecisionBody;
  "POST /api/experiments/{}/prolific/payments": PayBody;
  "POST /api/experiments/{}/prolific/payments/plan": PlanBody;
  "POST /api/experiments/{}/prolific/places": PlacesBody;
  "POST /api/experiments/{}/prolific/study": CostBody;
  "PUT /api/experiments/{}/prolific/study": StudyBody;
  "POST /api/experiments/{}/recruitment/check": LinkBody;
  "POST /api/experiments/{}/rehearsal": RehearsalBody;
  "POST /api/experiments/{}/requests": JobBody;
  "PUT /api/experiments/{}/shared": SharedBody;
  "PUT /api/experiments/{}/spec": FormData;
  "PUT /api/experiments/{}/state": StateBody;
  "POST /api/invitations": InvitationBody;
  "POST /api/people/erasures": ErasureBody;
  "POST /console/login": any;
  "POST /console/login/code": any;
  "POST /console/logout": any;
  "POST /console/welcome": any;
  "POST /create_user": any;
  "POST /e/{}/answers": { token: string; winner: number; rt_ms: number; query_wait_ms: number; onset_client_ms: number; network_latency_ms: number; input: "mouse" | "touch" | "key" | "script" | ""; sent_attempts: number; blur_during_trial: boolean; viewport_w: number; viewport_h: number } | ({ token: string; winner: number; rt_ms: number; query_wait_ms: number; onset_client_ms: number; network_latency_ms: number; input: "mouse" | "touch" | "key" | "script" | ""; sent_attempts: number; blur_during_trial: boolean; viewport_w: number; viewport_h: number })[];
  "POST /e/{}/arrive": ArriveBody;
  "POST /e/{}/events": { event: string; trial: number; client_ms: number; detail: string } | ({ event: string; trial: number; client_ms: number; detail: string })[];
  "POST /e/{}/finish": FinishBody;
  "POST /e/{}/steps/{}": StepBody;
}
